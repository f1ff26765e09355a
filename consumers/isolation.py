"""A step that may kill its process, run so that it takes nobody with it for long.

What was under way at a crash is read again by whoever is given its partition next. Its owner has
left a mark that he never took away; so only the first messages after such a death are counted as
they begin, and all else costs no write. What was begun and never ended runs alone from then on,
and is set aside when that goes on.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import timedelta
from typing import Final, Protocol

import structlog
from aiokafka import TopicPartition
from pymongo.errors import PyMongoError

from consumers.room import Room
from pipeline.failing.crash_loops import SET_ASIDE, Course, SuspectError, course_of
from pipeline.ports.deliveries import Deliveries
from schemas.message import IncomingMessage
from schemas.topics import Stage

FRESH: Final = 200
"""How many messages are counted after a death: more than complete between two commits, so that each
restart of a crash loop comes nearer to the one that crashes, however far behind the first
uncommitted message that is."""
GIVING_BACK: Final = timedelta(seconds=1)
"""How long taking the marks away may take. One that stays makes the next owner careful, no more."""
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
        self._taken: set[TopicPartition] = set()
        """Those with a mark that they are in our hands."""
        self._suspects: set[str] = set()
        self._counted: Counter[str] = Counter()
        """By subject, what runs here and is counted."""
        self._taking = asyncio.Lock()

    def assigned(self, partition: TopicPartition) -> None:
        """Look who had a partition before, when its first message comes."""
        self._taken.discard(partition)

    async def given_back(self, partitions: Collection[TopicPartition]) -> None:
        """Say that nothing of these is under way any more. Idempotent; raises nothing.

        What can't be said within a moment is left: the next owner is more careful then.
        """
        taken = self._taken.intersection(partitions)
        self._taken -= taken
        try:
            async with asyncio.timeout(GIVING_BACK.total_seconds()):
                for each in taken:
                    await self._deliveries.remove(self._stage, _mark(each))
        except (PyMongoError, TimeoutError) as error:
            log.warning("partitions_not_given_back", exception=type(error).__name__)

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
        partition = TopicPartition(message.at.topic, message.at.partition)
        if partition not in self._taken:
            await self._take(partition)
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
        if subject not in self._suspects:
            return Course.TOGETHER
        starts = await self._deliveries.starts(self._stage, subject)
        if starts == 0:
            self._suspects.discard(subject)
        return course_of(starts)

    async def _take(self, partition: TopicPartition) -> None:
        """Learn what was begun and has no end, be careful after a death, and leave our mark."""
        async with self._taking:
            if partition in self._taken:
                return
            unended = await self._deliveries.unended(self._stage)
            self._suspects = unended - self._counted.keys()
            if _mark(partition) in unended:
                self._fresh[partition] = FRESH
            else:
                self._fresh[partition] = 0
                await self._deliveries.put(self._stage, _mark(partition), 1)
            self._taken.add(partition)

    def _subject(self, message: IncomingMessage) -> str:
        subject = self._step.subject(message)
        if subject is None or not 0 < len(subject) <= LONGEST_SUBJECT:
            at = message.at
            return f"{at.topic}/{at.partition}/{at.offset}"
        return subject


def _mark(partition: TopicPartition) -> str:
    return f"{partition.topic}/{partition.partition}"
