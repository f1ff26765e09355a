"""A step that may kill its process, run so that it takes nobody with it for long.

Only what was under way at a crash is read again, by whoever is given its partition: so only the
first messages after an assignment are counted as they begin, and the rest costs no write. What
was begun and never ended runs alone from then on, and is set aside when that goes on.
"""

import asyncio
from collections import Counter, defaultdict
from typing import Final, Protocol

import structlog
from aiokafka import TopicPartition

from consumers.room import Room
from pipeline.crash_loops import SET_ASIDE, Course, SuspectError, course_of
from pipeline.ports import Deliveries
from schemas.message import IncomingMessage
from schemas.topics import Stage

FRESH: Final = 200
"""How many messages are counted after an assignment: more than complete between two commits, so
that each restart of a crash loop comes nearer to the one that crashes, however far behind the first
uncommitted message that is."""
LONGEST_SUBJECT: Final = 200

log = structlog.get_logger(__name__)


class SeparableStep(Protocol):
    """A step whose message can be run alone, and be set aside unread."""

    def subject(self, message: IncomingMessage) -> str | None:
        """Return what a message is about, the same in all its copies, without decoding it."""
        ...

    async def __call__(self, message: IncomingMessage) -> None:
        """Do as `pipeline.ports.Step` says.

        Raises:
            SuspectError: It is to run alone.
        """
        ...

    async def bury(self, message: IncomingMessage) -> bool:
        """Set a message aside, unread; return whether that was its end. Idempotent."""
        ...


class LastResort(Protocol):
    """Keeps a message that nothing may look at any more."""

    async def bury(self, message: IncomingMessage, stage: Stage) -> None:
        """Return once its letter is stored."""
        ...


class Isolation:
    """The step of all consumers of a stage in this process.

    Concurrency: any number of messages at once, of the same subject, too.
    """

    def __init__(
        self,
        step: SeparableStep,
        stage: Stage,
        *,
        deliveries: Deliveries,
        last_resort: LastResort,
        room: Room,
    ) -> None:
        self._step = step
        self._stage = stage
        self._deliveries = deliveries
        self._last_resort = last_resort
        self._room = room
        """The whole process's: a crash ends everything in it."""
        self._fresh: defaultdict[TopicPartition, int] = defaultdict(int)
        """By partition, how many messages are counted still."""
        self._suspects: set[str] = set()
        self._counted: Counter[str] = Counter()
        """By subject, what runs here and is counted."""
        self._assignments = 1
        self._read_at = 0
        """How many assignments there had been when the suspects were read."""
        self._reading = asyncio.Lock()

    def assigned(self, partition: TopicPartition) -> None:
        """Be careful with what comes of a partition: its last owner may have died of it."""
        self._fresh[partition] = FRESH
        self._assignments += 1

    @property
    def moves(self) -> int:
        """How often something ended in this process while others were held up for it, ever."""
        return self._room.moves

    async def __call__(self, message: IncomingMessage) -> None:
        """Run a message, together with others or alone, or see to it that it is a letter.

        Raises:
            Exception: What the step raises. The message was not the end of the process then, and
                this start counts for nothing.
            pymongo.errors.PyMongoError: It could not be counted.
        """
        subject = self._subject(message)
        course = await self._course(subject)
        if course is Course.PASS_BY:
            at = message.at
            log.error(
                "message_passed_by",
                topic=at.topic,
                partition=at.partition,
                offset=at.offset,
                advice="it killed the process again and again; its letter says what to do",
            )
            return
        if course is Course.TOGETHER:
            try:
                async with self._room.together():
                    await self._together(message, subject)
            except SuspectError:
                log.warning("message_runs_alone", stage=self._stage)
            else:
                return
        async with self._room.alone():
            await self._alone(message, subject)

    async def _together(self, message: IncomingMessage, subject: str) -> None:
        partition = TopicPartition(message.at.topic, message.at.partition)
        if self._fresh[partition] <= 0:
            await self._step(message)
            return
        self._fresh[partition] -= 1
        await self._counting(message, subject, starts=0)

    async def _alone(self, message: IncomingMessage, subject: str) -> None:
        """Go by the count as it is now: a copy may have changed it meanwhile."""
        starts = await self._deliveries.starts(self._stage, subject)
        match course_of(starts):
            case Course.TOGETHER | Course.ALONE:
                await self._counting(message, subject, starts=starts)
            case Course.BURY:
                await self._burying(message, subject, starts=starts)
            case Course.LETTER:
                await self._last_resort.bury(message, self._stage)
                await self._put(subject, SET_ASIDE)
            case Course.PASS_BY:
                return

    async def _counting(self, message: IncomingMessage, subject: str, *, starts: int) -> None:
        self._counted[subject] += 1
        is_over = False
        try:
            await self._deliveries.put(self._stage, subject, starts + 1)
            await self._step(message)
            is_over = True
        finally:
            self._counted[subject] -= 1
            if self._counted[subject] == 0:
                del self._counted[subject]
                await asyncio.shield(self._put(subject, 0 if is_over else starts))

    async def _burying(self, message: IncomingMessage, subject: str, *, starts: int) -> None:
        is_set_aside = False
        try:
            await self._deliveries.put(self._stage, subject, starts + 1)
            is_set_aside = await self._step.bury(message)
        finally:
            await asyncio.shield(self._put(subject, SET_ASIDE if is_set_aside else starts))

    async def _put(self, subject: str, starts: int) -> None:
        """Leave a count behind: what is known of a subject while nothing of it runs here."""
        if starts == 0:
            await self._deliveries.remove(self._stage, subject)
            self._suspects.discard(subject)
        else:
            await self._deliveries.put(self._stage, subject, starts)
            self._suspects.add(subject)

    async def _course(self, subject: str) -> Course:
        if self._read_at != self._assignments:
            await self._read()
        if subject not in self._suspects:
            return Course.TOGETHER
        starts = await self._deliveries.starts(self._stage, subject)
        if starts == 0:
            self._suspects.discard(subject)
        return course_of(starts)

    async def _read(self) -> None:
        """Learn what was begun elsewhere, or here before a restart, and has no end."""
        async with self._reading:
            assignments = self._assignments
            if self._read_at != assignments:
                unended = await self._deliveries.unended(self._stage)
                self._suspects = unended - self._counted.keys()
                self._read_at = assignments

    def _subject(self, message: IncomingMessage) -> str:
        subject = self._step.subject(message)
        if subject is None or not 0 < len(subject) <= LONGEST_SUBJECT:
            at = message.at
            return f"{at.topic}/{at.partition}/{at.offset}"
        return subject
