"""Importing on a real database: each line once, in order, however often and however cut off."""

import asyncio
import json
import signal
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pipeline.clock import SystemClock
from pipeline.errors import InvalidInputError, RecordingUnavailableError
from pipeline.ids import OpaqueIds
from pipeline.stores.mongo import Database
from pipeline.stores.sessions import MongoSessions
from pipeline.stores.turns import MongoTurns
from producers.importing import ImportProgress, import_transcript
from producers.recording import Recorded, Recorder
from schemas.message import OutgoingMessage
from schemas.turn import Turn
from tests import builders

IDS = OpaqueIds(b"k" * 32)
UNKNOWN_FIELD = (
    "has a field that no line may have; allowed are user_id, session_id, role, content, created_at,"
    " is_error, metadata, model_name, tool_call_id, tool_calls, tool_name"
)


class Nowhere:
    """Kafka, of which nothing is needed here."""

    async def publish(self, message: OutgoingMessage) -> None:
        del message


def recorder(db: Database) -> Recorder:
    return Recorder(
        sessions=MongoSessions(db, IDS),
        turns=MongoTurns(db),
        publisher=Nowhere(),
        ids=IDS,
        clock=SystemClock(),
    )


def said(session: str, content: str, **fields: Any) -> str:
    document = {"session_id": session, "user_id": "ana", "role": "user", "content": content}
    return json.dumps(document | fields)


def transcript(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    return path


async def stored(db: Database) -> dict[str, list[str]]:
    """Return what each session says, in order; fails on a gap."""
    by_session: dict[str, list[str]] = {}
    async for document in db["turns"].find({}, sort=[("session", 1), ("seq", 1)]):
        said_so_far = by_session.setdefault(document["identity"]["session_id"], [])
        said_so_far.append(document["content"])
        assert document["seq"] == len(said_so_far)
    return by_session


async def test_good_lines_become_turns_and_bad_ones_are_named(db: Database, tmp_path: Path) -> None:
    path = transcript(
        tmp_path / "t.jsonl",
        said("a", "one", created_at="2025-01-01T00:00:00Z", metadata={"k": "v"}),
        said("b", "eins"),
        "not json, hunter2",
        said("a", "two", role="hunter2"),
        "",
        said("a", "ok"),
        said("a", "ok"),
        said("a", "half \ud83d"),
        said("a", "late", idempotency_key="mine"),
        said("a", "three", created_at="2025-01-01T00:00:00"),
        said("a", "", role="assistant", tool_calls=[{"id": "1", "name": "look"}]),
    )
    report = await import_transcript(path, recorder(db))

    assert await stored(db) == {
        "a": ["one", "ok", "ok", "half \ufffd", ""],
        "b": ["eins"],
    }
    assert [(each.line, each.field, each.rule) for each in report.problems] == [
        (3, "line", "must be JSON"),
        (4, "role", "must be one of 'user', 'assistant', 'tool' or 'system'"),
        (9, "line", UNKNOWN_FIELD),
        (10, "created_at", "must say its offset from UTC"),
    ]
    assert "hunter2" not in repr(report)
    assert (report.recorded, report.already_there, report.bad) == (6, 0, 4)
    assert (report.lines, report.repairs, report.sessions) == (10, 1, 2)


async def test_importing_again_adds_nothing_and_a_longer_file_what_is_new(
    db: Database, tmp_path: Path
) -> None:
    lines = [said(f"s{n % 3}", f"turn {n}") for n in range(12)] + [said("s0", "ok")] * 2
    path = transcript(tmp_path / "t.jsonl", *lines)
    await import_transcript(path, recorder(db))
    before = await stored(db)
    again = await import_transcript(path, recorder(db))

    assert await stored(db) == before
    assert (again.recorded, again.already_there) == (0, 14)

    copy = transcript(tmp_path / "copy.jsonl", *lines, said("s0", "ok"), said("new", "hello"))
    longer = await import_transcript(copy, recorder(db))

    assert (longer.recorded, longer.already_there) == (2, 14)
    assert (await stored(db))["s0"][-3:] == ["ok", "ok", "ok"]


async def test_a_bad_line_that_is_mended_is_all_that_is_added(db: Database, tmp_path: Path) -> None:
    path = transcript(tmp_path / "t", said("a", "1"), said("a", "2", role="x"), said("a", "3"))
    await import_transcript(path, recorder(db))
    transcript(path, said("a", "1"), said("a", "2"), said("a", "3"))
    mended = await import_transcript(path, recorder(db))

    assert (mended.recorded, mended.already_there) == (1, 2)
    assert (await stored(db))["a"] == ["1", "3", "2"]


async def test_sessions_are_closed_only_when_asked(db: Database, tmp_path: Path) -> None:
    path = transcript(tmp_path / "t", said("a", "1"), said("b", "2"))
    turns = MongoTurns(db)
    await import_transcript(path, recorder(db))

    assert [each.is_closed for each in await turns.open_sessions()] == [False, False]

    await import_transcript(path, recorder(db), close=True)

    assert [each.is_closed for each in await turns.open_sessions()] == [True, True]


async def test_a_bad_project_and_a_missing_file_are_said_at_once(
    db: Database, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError):
        await import_transcript(tmp_path / "none", recorder(db), project_id=" ")
    with pytest.raises(FileNotFoundError):
        await import_transcript(tmp_path / "none", recorder(db))


class Scripted:
    """A recorder that fails as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.contents: list[str] = []

    async def record_once(self, identity: Any, said: dict[str, Any]) -> Recorded:
        await asyncio.sleep(0)
        if self.failures > 0:
            self.failures -= 1
            raise RecordingUnavailableError("gone")
        self.contents.append(said["content"])
        return Recorded(turn=TURN.model_copy(update={"identity": identity}), is_new=True)


TURN: Turn = builders.turn(1)


async def test_a_database_that_is_gone_for_a_moment_is_waited_for_in_order(
    tmp_path: Path,
) -> None:
    path = transcript(tmp_path / "t", *(said("a", str(n)) for n in range(5)))
    scripted: Any = Scripted(failures=2)
    await import_transcript(path, scripted, patience=(0.0, 0.0))

    assert scripted.contents == ["0", "1", "2", "3", "4"]


async def test_a_database_that_stays_away_ends_the_import(tmp_path: Path) -> None:
    path = transcript(tmp_path / "t", *(said("a", str(n)) for n in range(500)))
    scripted: Any = Scripted(failures=10_000)
    with pytest.raises(RecordingUnavailableError):
        await import_transcript(path, scripted, patience=(0.0,))


async def test_ten_times_the_lines_take_no_more_memory(
    tmp_path: Path,
) -> None:
    async def peak(lines: int) -> int:
        path = tmp_path / f"{lines}"
        with path.open("w") as file:
            for n in range(lines):
                file.write(said(f"s{n % 50}", f"turn {n} " + "word " * 40) + "\n")
        seen: list[ImportProgress] = []
        scripted: Any = Scripted()
        scripted.contents = Nothing()
        tracemalloc.start()
        await import_transcript(path, scripted, progress=seen.append)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert seen[-1].bytes_read == seen[-1].bytes_in_all == path.stat().st_size
        return most - sum(map(sys.getsizeof, seen))

    small, large = await peak(2_000), await peak(20_000)

    assert large < small + 1024 * 1024


class Nothing:
    """A list that forgets."""

    def append(self, item: str) -> None:
        del item


async def test_an_import_that_was_killed_goes_on_where_it_was(
    db: Database, mongo_uri: str, tmp_path: Path
) -> None:
    lines = [said(f"s{n % 5}", f"turn {n // 2}") for n in range(120)]
    path = transcript(tmp_path / "t.jsonl", *lines)
    for turns in (30, 40):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.import_process"),
            *(mongo_uri, db.name, str(path), str(turns)),
        )

        assert await process.wait() == -signal.SIGKILL
    killed_at = await db["turns"].count_documents({})
    report = await import_transcript(path, recorder(db))

    assert 70 < killed_at < 120
    assert (report.recorded, report.already_there) == (120 - killed_at, killed_at)
    assert await db["turns"].count_documents({"open": {"$exists": True}}) == 120
    own = [json.loads(line) for line in lines]
    assert await stored(db) == {
        f"s{n}": [each["content"] for each in own if each["session_id"] == f"s{n}"]
        for n in range(5)
    }


async def test_what_a_user_says_across_sessions_keeps_the_order_of_the_file(
    db: Database, tmp_path: Path
) -> None:
    path = tmp_path / "talk.jsonl"
    lines = [
        {"session_id": f"s{number % 7}", "user_id": "ana", "role": "user", "content": str(number)}
        for number in range(70)
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))

    await import_transcript(path, recorder(db))

    recorded = db["turns"].find().sort("recorded_at", 1)
    assert [turn["content"] async for turn in recorded] == [line["content"] for line in lines]


async def test_a_line_that_is_mended_added_or_taken_away_doubles_none_after_it(
    db: Database, tmp_path: Path
) -> None:
    path = tmp_path / "talk.jsonl"
    a, b, c, d = (said("s", words) for words in "abcd")
    path.write_text("\n".join([a, "no json", c, c, d]))
    await import_transcript(path, recorder(db))

    path.write_text("\n".join([a, b, c, c, d]))
    mended = await import_transcript(path, recorder(db))
    path.write_text("\n".join([b, c, c, d]))
    shorter = await import_transcript(path, recorder(db))

    assert (mended.recorded, mended.already_there) == (1, 4)
    assert (shorter.recorded, shorter.already_there) == (0, 4)


async def test_closing_waits_for_a_database_that_comes_back_and_else_says_so(
    tmp_path: Path,
) -> None:
    class Closing(Scripted):
        """Closes at the third try."""

        tries = 0

        async def close(self, identity: object) -> None:
            del identity
            self.tries += 1
            if self.tries < 3:
                raise RecordingUnavailableError("gone")

    path = tmp_path / "talk.jsonl"
    path.write_text(said("s", "a"))
    patient: Any = Closing()
    hasty: Any = Closing()

    await import_transcript(path, patient, close=True, patience=(0, 0))
    with pytest.raises(RecordingUnavailableError):
        await import_transcript(path, hasty, close=True, patience=(0,))

    assert patient.tries == 3
