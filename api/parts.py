"""What every route is handed: the parts of the server, and who asks."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Depends, Header, Request, Response
from pydantic import TypeAdapter, ValidationError

from api.access import Gatekeeper
from api.naming import Caller, refused
from consumers.exporting import PrometheusExporter
from pipeline.access.quotas import Quota
from pipeline.access.signing_in import Logins
from pipeline.forgetting.records import Forgetter
from pipeline.metrics import Metrics
from pipeline.ports.records import Records
from pipeline.reading.reranking import Reranker
from pipeline.reading.searching import Searcher
from pipeline.recording import rule_of
from pipeline.saving.direct import Saver
from pipeline.stores.executions import MongoExecutions
from pipeline.stores.projects import MongoProjects
from producers.recording import Recorder
from schemas.identity import Name

_NAMES: Final[TypeAdapter[str]] = TypeAdapter(Name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the routes work with."""

    recorder: Recorder
    saver: Saver
    forgetter: Forgetter
    records: Records
    searcher: Searcher
    reranker: Reranker | None
    """None where none is configured."""
    executions: MongoExecutions
    projects: MongoProjects
    logins: Logins
    gatekeeper: Gatekeeper | None
    """None where nobody need sign in."""
    quota: Quota
    metrics: Metrics
    exporter: PrometheusExporter | None
    ping: Callable[[], Awaitable[None]]
    """Returns if the database answers soon, else raises what its client raises."""


def asking(
    request: Request,
    agent: Annotated[str | None, Header(alias="X-Agent-Engine-Agent-Id")] = None,
    old_agent: Annotated[str | None, Header(alias="X-Agentic-Agent-Id")] = None,
    execution: Annotated[str | None, Header(alias="X-Agent-Engine-Execution-Id")] = None,
    old_execution: Annotated[str | None, Header(alias="X-Agentic-Execution-Id")] = None,
) -> Caller:
    """Return who asks: who signed in, the project of the path, agent and execution of headers.

    Raises:
        InvalidInputError: One of them can't be a name.
    """
    return Caller(
        path_project=_checked("project_id", request.path_params.get("project_id")),
        principal=getattr(request.state, "principal", None),
        agent_id=_checked("agent_id", _name(agent) or _name(old_agent)),
        execution_id=_checked("execution_id", _name(execution) or _name(old_execution)),
    )


def _checked(field: str, name: str | None) -> str | None:
    """Return a name, held to the rules that it is held to in a body."""
    if name is None:
        return None
    try:
        return _NAMES.validate_python(name)
    except ValidationError as error:
        rule = rule_of(error.errors(include_url=False, include_input=False)[0])
    # Outside of the handler: pydantic's error quotes the input and must not become our context.
    raise refused(field, rule)


def _name(header: str | None) -> str | None:
    return header if header and header.strip() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request: who asks, and what answers."""

    caller: Caller
    parts: Parts


def called(request: Request, caller: Annotated[Caller, Depends(asking)]) -> Call:
    """Return a request as the routes get it."""
    return Call(caller=caller, parts=request.app.state.parts)


Called = Annotated[Call, Depends(called)]


async def storing(call: Called, response: Response) -> AsyncGenerator[Call]:
    """Yield a request that stores something, which counts towards its project's quota.

    Sent again and known (200 for 201), it counts no second time.

    Raises:
        QuotaExceededError: The project has stored what it may in a day.
    """
    principal = call.caller.principal
    if principal is None:
        yield call
        return
    async with call.parts.quota.one_more(principal.project_id) as counted:
        yield call
        counted.is_new = response.status_code != HTTPStatus.OK


Storing = Annotated[Call, Depends(storing)]
