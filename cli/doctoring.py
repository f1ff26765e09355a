"""`doctor`: whether this process could work here, and if not, where and what to do."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import typer
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from cli.connecting import absence, advice, mongo_address
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for
from cli.failing import MISADDRESSED, message_of, refusal
from cli.output import Output, counted
from cli.running import run
from consumers.deadlines import deadline_problems
from consumers.reading_wiring import search_indexes
from pipeline.embedding.checking import mending, not_active, probed
from pipeline.embedding.choosing import embedder_from, model_name
from pipeline.errors import BrokerUnavailableError, ConfigurationError
from pipeline.failing.failures import action
from pipeline.failing.reasons import remedy
from pipeline.models.choosing import model_from
from pipeline.settings import LLMSettings, Settings
from pipeline.stores.indexes import INDEXES
from pipeline.stores.mongo import SERVER_NOW_MS, Database, connect, database
from pipeline.stores.search_server import MongoSearchServer
from pipeline.stores.vectors import MongoActiveModel
from producers.topics import check_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    is_well: bool
    detail: str
    """What was found, and where it is not well, what to do."""


_ANSWERS: Final = "it answers and takes the key; whether it knows the model, the first call tells"


def register(application: typer.Typer) -> None:
    """Add the command."""
    application.command("doctor")(doctor)


def doctor(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Look at MongoDB, Kafka, the model and the embedder; say what is wrong and how to mend it."""
    run(_doctor(settings_for(data_dir), data_dir, Output(as_json=as_json)))


async def findings_of(settings: Settings, data_dir: Path) -> list[Finding]:
    """Look at everything and return what was found; nothing is changed."""
    return [
        *await asyncio.gather(_mongo(settings, data_dir), _kafka(settings)),
        # Not beside them: the vendor's library blocks while it is imported, for longer than they
        # may take on a machine that is busy, and both would be called silent.
        await _model(settings),
        await _embedder(settings),
        _deadlines(settings),
    ]


async def _doctor(settings: Settings, data_dir: Path, output: Output) -> int:
    findings = await findings_of(settings, data_dir)
    for finding in findings:
        sign = "well " if finding.is_well else "WRONG"
        output.say(f"{sign}  {finding.name}: {finding.detail}")
    wrong = sum(not finding.is_well for finding in findings)
    output.result(
        {
            "well": not wrong,
            "findings": [
                {"name": one.name, "well": one.is_well, "detail": one.detail} for one in findings
            ],
        },
        error=f"{counted(wrong, 'finding')} to mend" if wrong else None,
    )
    return 1 if wrong else 0


async def _mongo(settings: Settings, data_dir: Path) -> Finding:
    absent = await absence(settings, data_dir)
    problems = await _mongo_answers(settings, data_dir) if absent is None else [absent]
    return Finding(
        name=f"MongoDB at {mongo_address(settings.mongo)}",
        is_well=not problems,
        detail="; ".join(problems) or f"database {settings.mongo.database}, all indexes there",
    )


async def _mongo_answers(settings: Settings, data_dir: Path) -> list[str]:
    try:
        client = connect(settings.mongo)
    except (ConfigurationError, *MISADDRESSED) as error:
        return [message_of(error)]
    try:
        # First of all, since each of the commands that follow would wait as long for a server.
        await client.admin.command("ping")
        db = database(client, settings.mongo)
        return [
            *await _mongo_problems(db),
            *await _embedding_problems(db, settings),
            *await _search_problems(db, settings),
        ]
    except MISADDRESSED as error:
        return [message_of(error)]
    except OperationFailure as error:
        return [f"it {refusal(error)}"]
    except PyMongoError as error:
        return [
            f"it does not answer ({type(error).__name__}), and nothing can be recorded without it:"
            f" {advice(data_dir)}"
        ]
    finally:
        await client.close()


async def _mongo_problems(db: Database) -> list[str]:
    """Try what everything here relies on, in a collection of its own."""
    problems: list[str] = []
    scratch = db[f"doctor_{uuid4().hex[:8]}"]
    try:
        await scratch.insert_one({"_id": "one"})
        try:
            await scratch.insert_one({"_id": "one"})
            problems.append("unique keys are not kept")
        except DuplicateKeyError:
            pass
        await scratch.update_one({"_id": "one"}, [{"$set": {"lease": SERVER_NOW_MS}}])
        late = await scratch.update_one(
            {"_id": "one", "lease": {"$lte": 0}}, {"$set": {"taken": True}}
        )
        document = await scratch.find_one({"_id": "one"})
        if late.matched_count or not isinstance((document or {}).get("lease"), int):
            problems.append("server time in updates is wrong: leases would not hold")
    finally:
        await scratch.drop()
    for collection, models in INDEXES.items():
        there = set(await db[collection].index_information())
        missing = {str(model.document["name"]) for model in models} - there
        if missing:
            problems.append(f"indexes missing in {collection}: run `./afterturn indexes apply`")
    return problems


async def _kafka(settings: Settings) -> Finding:
    where = settings.kafka.bootstrap_servers
    try:
        problems = await check_topics(settings.kafka)
    except BrokerUnavailableError as error:
        problems = [
            f"it does not answer ({type(error.__cause__).__name__}); recording goes on without it,"
            " extraction waits: start it, or name it in AFTERTURN_KAFKA__BOOTSTRAP_SERVERS"
        ]
    except ConfigurationError as error:
        problems = [str(error)]
    return Finding(
        name=f"Kafka at {where}",
        is_well=not problems,
        detail="; ".join(problems) or "all topics are there as they should be",
    )


def _deadlines(settings: Settings) -> Finding:
    problems = deadline_problems(settings)
    return Finding(
        name="Deadlines",
        is_well=not problems,
        detail="; ".join(problems) or "none contradicts another",
    )


async def _model(settings: Settings) -> Finding:
    llm = settings.llm
    if llm.provider is None:
        return Finding(
            name="Model",
            is_well=True,
            detail=(
                "none is configured: `up` and `demo` use the offline extractor, which picks"
                " sentences by rules and is no language model. Set AFTERTURN_LLM__PROVIDER,"
                " __MODEL and __API_KEY for a real one, here as where it runs: only the environment"
                " of this command was looked at"
            ),
        )
    name = f"Model {llm.model or '(not named)'} at {llm.base_url or llm.provider}"
    problem = await _model_problem(llm)
    return Finding(name=name, is_well=problem is None, detail=problem or _ANSWERS)


async def _embedder(settings: Settings) -> Finding:
    """Ask for one vector, which tells its dimension too."""
    embedding = settings.embedding
    if embedding.provider == "none":
        return Finding(
            name="Embedder",
            is_well=True,
            detail=(
                "none is configured: `up` and `demo` use multilingual-e5-small, which is installed"
                " with Afterturn; elsewhere search goes by words alone until"
                " AFTERTURN_EMBEDDING__PROVIDER names one"
            ),
        )
    try:
        embedder = embedder_from(embedding)
    except ConfigurationError as error:
        return Finding(name=f"Embedder {embedding.provider}", is_well=False, detail=str(error))
    try:
        failure = await probed(embedder)
    finally:
        await embedder.aclose()
    return Finding(
        name=f"Embedder {embedder.model}",
        is_well=failure is None,
        detail=f"it makes vectors of {embedder.dimension} finite numbers"
        if failure is None
        else f"{failure.reason} ({failure.failure_class}): {mending(failure)}",
    )


async def _embedding_problems(db: Database, settings: Settings) -> list[str]:
    """Return whether the vectors there are are those of another model."""
    active = await MongoActiveModel(db).active()
    if active is None or settings.embedding.provider == "none":
        return []
    try:
        configured = model_name(settings.embedding)
    except ConfigurationError:
        return []  # the embedder's own finding
    return [] if configured == active else [not_active(active, configured)]


async def _search_problems(db: Database, settings: Settings) -> list[str]:
    """Return what keeps the database from searching by itself, if it is to."""
    if settings.search.backend != "mongodb":
        return []
    server = MongoSearchServer(db)
    absence = await server.absence()
    if absence is not None:
        return [absence]
    try:
        wanted = search_indexes(settings)
    except ConfigurationError:
        return []  # the embedder's own finding
    lacking = [
        f"{index.collection}.{index.name}: {reason}"
        for index in wanted
        if (reason := await server.lacks(index.collection, index.name)) is not None
    ]
    return [f"{each}: run `./afterturn search-indexes apply`, or wait" for each in lacking]


async def _model_problem(llm: LLMSettings) -> str | None:
    """Ask for the list of models, which costs nothing."""
    if not llm.model:
        return "set AFTERTURN_LLM__MODEL"
    try:
        model = model_from(llm)
    except ConfigurationError as error:
        return str(error)
    try:
        failure = await model.check()
    finally:
        await model.aclose()
    if failure is None:
        return None
    to_do = remedy(failure.reason) or action(failure)
    return f"{failure.reason} ({failure.failure_class}): {to_do}"
