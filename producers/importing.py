"""Importing a transcript: every good line becomes a turn, once, however often that is tried.

A turn is known by its session, what it says, and its number among the lines that say the same. So
a file that was cut off is simply imported again, and one that has grown or was mended adds what is
new.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from pipeline.errors import (
    ConflictError,
    InvalidInputError,
    Problem,
    RecordingUnavailableError,
)
from pipeline.recording import accept_identity
from producers.occurrences import Occurrences
from producers.recording import Recorded, Recorder
from producers.transcripts import Line, Said, lines_of, said_in
from schemas.identity import DEFAULT_PROJECT, SessionIdentity

WORKERS: Final = 16
"""How many users' lines are recorded at once."""
QUEUED_LINES: Final = 4
"""How many lines may wait for each worker; with the longest line, what bounds the memory."""
BATCH_LINES: Final = 32
"""How many lines are read at once, in a thread."""
PROBLEMS_KEPT: Final = 1000
PATIENCE_SECONDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""How long a line waits before it is tried again while MongoDB is not to be had."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineProblem:
    """Which rule a line breaks; nothing of what it says."""

    line: int
    field: str
    """`line` where it is about the line as a whole."""
    rule: str

    def __str__(self) -> str:
        where = f"line {self.line}" if self.field == "line" else f"line {self.line}: {self.field}"
        return f"{where} {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportProgress:
    """How far an import is."""

    lines: int
    recorded: int
    bytes_read: int
    bytes_in_all: int


@dataclass(slots=True, kw_only=True)
class ImportReport:
    """What became of the lines of a file: each that is not blank is in one of three counts."""

    recorded: int = 0
    """Turns that are new."""
    already_there: int = 0
    """Turns an earlier import had recorded."""
    bad: int = 0
    """Lines that are no turn."""
    repairs: int = 0
    """Lone surrogates that were replaced in new turns."""
    sessions: int = 0
    """Sessions that have a turn in the file."""
    problems: list[LineProblem] = field(default_factory=list[LineProblem])
    """What is wrong with bad lines, by line; the first thousand."""

    @property
    def lines(self) -> int:
        """How many lines were not blank."""
        return self.recorded + self.already_there + self.bad


async def import_transcript(
    path: Path,
    recorder: Recorder,
    *,
    project_id: str = DEFAULT_PROJECT,
    close: bool = False,
    progress: Callable[[ImportProgress], None] | None = None,
    patience: Sequence[float] = PATIENCE_SECONDS,
) -> ImportReport:
    """Record the lines of a file as turns, those of each user in their order.

    Args:
        path: JSON lines: session_id, user_id, role, content, and what else a turn may have.
        recorder: What records them.
        project_id: The project they belong to.
        close: Whether to close their sessions in the end, so that they are extracted at once.
        progress: Called from time to time.
        patience: How many seconds a line waits before each further try while MongoDB is gone.

    Idempotent: also after it was cut off anywhere.

    Raises:
        InvalidInputError: The project's name breaks rules.
        OSError: The file can't be read.
        RecordingUnavailableError: MongoDB was gone for too long; import the file again.
    """
    accept_identity({"project_id": project_id, "user_id": "-", "session_id": "-"})
    size = (await asyncio.to_thread(path.stat)).st_size
    with Occurrences() as occurrences:
        work = _Import(recorder, patience, occurrences)
        await _record_lines(work, path, size, project_id, progress)
    if close:
        await work.close_sessions()
    return work.finished()


async def _record_lines(
    work: "_Import",
    path: Path,
    size: int,
    project_id: str,
    progress: Callable[[ImportProgress], None] | None,
) -> None:
    queues = [asyncio.Queue[_Item | None](QUEUED_LINES) for _ in range(WORKERS)]
    try:
        async with asyncio.TaskGroup() as group:
            for queue in queues:
                group.create_task(work.record_from(queue))
            lines = lines_of(path)
            while batch := await asyncio.to_thread(_take, lines, BATCH_LINES):
                for line in batch:
                    await work.distribute(line, project_id, queues)
                if progress is not None:
                    progress(work.progress(batch[-1].end, size))
            for queue in queues:
                await queue.put(None)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    line: int
    said: Said
    key: str


class _Import:
    def __init__(
        self, recorder: Recorder, patience: Sequence[float], occurrences: Occurrences
    ) -> None:
        self._recorder = recorder
        self._occurrences = occurrences
        self._patience = tuple(patience)
        self._report = ImportReport()
        self._sessions: set[SessionIdentity] = set()

    async def distribute(
        self, line: Line, project_id: str, queues: Sequence["asyncio.Queue[_Item | None]"]
    ) -> None:
        """Give a line to the worker of its user, which waits until there is room.

        What a user says in one session and corrects in the next stays in the order of the file.
        """
        try:
            said = said_in(line, project_id=project_id)
        except InvalidInputError as error:
            self._refuse(line.number, error.problems)
            return
        key = said.key(self._occurrences.count(said.digest()))
        item = _Item(line=line.number, said=said, key=key)
        whose = (said.whose.project_id, said.whose.user_id)
        await queues[hash(whose) % len(queues)].put(item)

    async def record_from(self, queue: "asyncio.Queue[_Item | None]") -> None:
        """Record what comes, one after the other, until there is no more."""
        while (item := await queue.get()) is not None:
            try:
                recorded = await self._recorded(item)
            except InvalidInputError as error:
                self._refuse(item.line, error.problems)
            except ConflictError:
                rule = "was recorded as something else before"
                self._refuse(item.line, (Problem(field="line", rule=rule),))
            else:
                self._count(recorded)

    async def close_sessions(self) -> None:
        """Close every session that has a turn in the file."""
        identities = iter(self._sessions)
        while batch := _take(identities, WORKERS):
            try:
                async with asyncio.TaskGroup() as group:
                    for whose in batch:
                        group.create_task(self._patiently(partial(self._recorder.close, whose)))
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None

    def progress(self, bytes_read: int, bytes_in_all: int) -> ImportProgress:
        """Return how far it is."""
        return ImportProgress(
            lines=self._report.lines,
            recorded=self._report.recorded,
            bytes_read=bytes_read,
            bytes_in_all=bytes_in_all,
        )

    def finished(self) -> ImportReport:
        """Return the report, its problems by line."""
        self._report.problems.sort(key=lambda problem: problem.line)
        self._report.sessions = len(self._sessions)
        return self._report

    async def _recorded(self, item: _Item) -> Recorded:
        draft = {**item.said.fields, "idempotency_key": item.key}
        return await self._patiently(partial(self._recorder.record_once, item.said.whose, draft))

    async def _patiently(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do it again while MongoDB is not to be had, as long as patience lasts."""
        for seconds in self._patience:
            try:
                return await work()
            except RecordingUnavailableError:
                await asyncio.sleep(seconds)
        return await work()

    def _count(self, recorded: Recorded) -> None:
        self._sessions.add(recorded.turn.identity)
        if recorded.is_new:
            self._report.recorded += 1
            self._report.repairs += recorded.turn.repairs
        else:
            self._report.already_there += 1

    def _refuse(self, line: int, problems: Sequence[Problem]) -> None:
        self._report.bad += 1
        room = PROBLEMS_KEPT - len(self._report.problems)
        self._report.problems.extend(
            LineProblem(line=line, field=problem.field, rule=problem.rule)
            for problem in problems[:room]
        )


def _take(items: Iterator[T], count: int) -> list[T]:
    return list(islice(items, count))
