"""I11: no word of a conversation, no name, no key in any topic, header, log line or letter."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from compose.embedded import embedded_kafka
from schemas.identity import SessionIdentity
from schemas.topics import TOPICS
from tests.faults.system import system
from tests.faults.test_crash_points import home
from tests.scripted_endpoint import Reply, ScriptedEndpoint, calls_tool, raw, refuses, status

WORDS = ("Quentin", "Vladivostok", "plumtree", "zebrafish")
USER, SESSION_ID = "quentin@example.org", "zebrafish-7"
SECRET = "sk-planted-0123456789abcdefghij0123456789"
SAID = [
    (
        SessionIdentity(user_id=USER, session_id=SESSION_ID),
        f"I am Quentin, I live in Vladivostok at plumtree {number}; my key is {SECRET}",
    )
    for number in range(3)
]
PLANTED = (*WORDS, USER, SESSION_ID, SECRET, "sk-planted")


@pytest.mark.parametrize(
    ("first", "letters"),
    [
        pytest.param([], 0, id="well"),
        pytest.param([status(503, message="Quentin of Vladivostok")], 0, id="unavailable"),
        pytest.param(
            [raw(b"<html>Quentin plumtree</html>", content_type="text/html")], 0, id="html"
        ),
        pytest.param([refuses("Quentin, I cannot speak of Vladivostok")], 1, id="refused"),
        pytest.param([status(400, message="plumtree zebrafish")], 1, id="bad request"),
        pytest.param([calls_tool('{"semantic": "plumtree Quentin"')] * 2, 1, id="invalid"),
    ],
)
async def test_planted_words_are_nowhere_but_in_turns_and_memory(
    first: list[Reply],
    letters: int,
    mongo_uri: str,
    endpoint: ScriptedEndpoint,
    tmp_path: Path,
) -> None:
    endpoint.script(*first)
    endpoint.respond_with(home)
    async with (
        embedded_kafka(tmp_path / "kafka") as kafka,
        system(mongo_uri, kafka.bootstrap_servers, endpoint, tmp_path) as running,
    ):
        running.start(SAID)
        await running.settles(len(SAID))
        running.kill()

        on_kafka = await everything_on(kafka.bootstrap_servers)
        logs = (tmp_path / "workers.log").read_text()
        kept = [letter async for letter in running.parts.database["letters"].find()]
        ledger = [one async for one in running.parts.database["extractions"].find()]

    assert len(kept) == letters
    assert len(on_kafka) > len(SAID)
    assert planted_in(b"\n".join(on_kafka).decode("utf-8", "replace")) == []
    assert planted_in(logs) == []
    assert planted_in(json.dumps(kept, default=repr)) == []
    failures = [extraction["attempts"] for extraction in ledger]
    assert planted_in(json.dumps(failures, default=repr)) == []
    ids = [extraction["_id"] for extraction in ledger]
    assert planted_in(json.dumps(ids)) == []
    assert SECRET not in json.dumps(ledger, default=repr)


def planted_in(text: str) -> list[str]:
    return [word for word in PLANTED if word.casefold() in text.casefold()]


async def everything_on(bootstrap_servers: str) -> list[bytes]:
    """Return every key, value and header of every topic."""
    partitions = [
        TopicPartition(topic.name, number) for topic in TOPICS for number in range(topic.partitions)
    ]
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
    await consumer.start()
    try:
        ends: dict[TopicPartition, int] = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        expected = sum(ends.values())
        found: list[bytes] = []
        read = 0
        while read < expected:
            batches: dict[Any, list[Any]] = await consumer.getmany(timeout_ms=1000)
            for record in (record for batch in batches.values() for record in batch):
                read += 1
                found += [record.key or b"", record.value or b""]
                for name, value in record.headers:
                    found += [name.encode(), value or b""]
        return found
    finally:
        await consumer.stop()
