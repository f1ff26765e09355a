"""`./afterturn letters`: what operators see, and that they put it right with what they see."""

import asyncio
import json
from typing import Any

import pytest

from cli.letters import register
from consumers.wiring import wire
from pipeline.errors import AnswerError, LetterError
from pipeline.settings import Settings
from pipeline.stores.mongo import connect, database
from schemas.failure import Coordinates, FailureClass
from schemas.message import IncomingMessage
from schemas.topics import SNAPSHOT_READY, Stage
from tests.integration.commanding import Command, command_of, settings_of, told
from tests.integration.test_extracting import Broker, ScriptedModel, announced, run

SAID = "I live in Porto and nobody else may know."
RUBBISH = b'{"user_says": "hush"}'


@pytest.fixture
def settings(mongo_uri: str) -> dict[str, str]:
    return settings_of(mongo_uri) | {"AFTERTURN_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}


@pytest.fixture
def command(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Command:
    """Return what runs a command in this process, with a refused snapshot and a rubbish message."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    asyncio.run(two_letters())
    return command_of(register, "letters", settings, tmp_path)


async def two_letters() -> None:
    settings, broker = Settings(), Broker()
    client = connect(settings.mongo)
    try:
        parts = await wire(settings, database(client, settings.mongo), broker)
        await announced(parts, broker, SAID)
        await run(parts, broker, ScriptedModel(AnswerError(FailureClass.REFUSED, "refusal")))
        at = Coordinates(
            topic=SNAPSHOT_READY.name, partition=1, offset=5, timestamp_ms=7, group="g"
        )
        rubbish = IncomingMessage(at=at, key=None, value=RUBBISH, headers=())
        await parts.dead_letters.bury(rubbish, Stage.EXTRACTION)
    finally:
        await client.close()


def test_an_operator_finds_the_cause_and_puts_it_right(command: Command) -> None:
    groups = told(command("groups", "--new-since", "2000-01-01", "--json"))["groups"]
    (refused,) = [one for one in groups if one["class"] == "content.refused"]
    (letter,) = told(command("list", "--group", refused["fingerprint"], "--json"))["letters"]
    said = command("groups").stdout
    shown = command("show", letter["letter_id"])
    estimate = told(command("redrive", "--group", refused["fingerprint"], "--dry-run", "--json"))
    sent = told(command("redrive", letter["letter_id"], "--max-tokens", "9000", "--json"))
    again = command("redrive", letter["letter_id"], "--json")

    assert [one["letters"] for one in groups] == [one["new"] for one in groups] == [1, 1]
    assert refused["action"] in said
    assert letter["reason"] in shown.stdout
    assert letter["extraction_id"] in shown.stdout
    assert (estimate["letters"], estimate["dry_run"]) == (1, True)
    assert estimate["tokens"] > 0
    assert (sent["letters"], sent["sent"], sent["refused"]) == (1, 1, 0)
    assert told(command("list", "--state", "waiting", "--json"))["letters"]
    assert again.exit_code == 1
    assert "is waiting and not dead" in json.loads(again.stdout.splitlines()[-1])["error"]


def test_words_are_shown_only_where_they_are_asked_for(command: Command) -> None:
    letters = told(command("list", "--json"))["letters"]
    ids = [one["letter_id"] for one in letters]
    (refused,) = [one["letter_id"] for one in letters if one["extraction_id"]]
    (rubbish,) = [one for one in ids if one != refused]

    said = [command("list"), command("list", "--json"), command("groups", "--json")]
    said += [command("show", each) for each in ids] + [command("show", refused, "--json")]
    asked = told(command("show", refused, "--turns", "--json"))
    whole = told(command("show", rubbish, "--json"))

    assert not any(SAID in one.output or "hush" in one.output for one in said)
    assert [one["content"] for one in asked["turns"]] == [SAID]
    assert whole["value"] == {"text": RUBBISH.decode()}


def test_what_is_discarded_can_be_restored(command: Command) -> None:
    ids = [one["letter_id"] for one in told(command("list", "--json"))["letters"]]
    told(command("discard", *ids, "--reason", "bad_input", "--json"))
    discarded = told(command("list", "--state", "discarded", "--json"))["letters"]
    none = told(command("redrive", "--all", "--json"))
    told(command("restore", *ids, "--json"))

    assert {one["discarded_for"] for one in discarded} == {"bad_input"}
    assert none["letters"] == 0
    assert len(told(command("list", "--json"))["letters"]) == len(ids)


def test_what_is_not_said_is_not_sent_back(command: Command) -> None:
    """A command without a selection is a slip, and would be every letter."""
    slip, unknown = command("redrive"), command("show", "no such letter")

    for refused, advice in ((slip, "say --all"), (unknown, "letters list")):
        assert isinstance(refused.exception, LetterError)
        assert advice in str(refused.exception)
    assert told(command("list", "--state", "waiting", "--json"))["letters"] == []


def test_kafka_that_is_down_is_said_and_nothing_is_lost(command: Command) -> None:
    """The part of an extraction goes when the sweep sends it; a message can only go by Kafka."""
    letters = told(command("list", "--json"))["letters"]
    (rubbish,) = [one["letter_id"] for one in letters if not one["extraction_id"]]

    refused = command("redrive", rubbish)

    assert refused.exception is not None
    assert "Kafka" in str(refused.exception)
    (left,) = told(command("list", "--state", "waiting", "--json"))["letters"]
    assert left["letter_id"] == rubbish
