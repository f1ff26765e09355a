"""Which snapshots a selection is, whatever it goes by.

What hangs on a snapshot itself, or on the run that counts, is looked up page by page. What hangs on
letters or on messages, which change and go, is found once and kept as a list of ids.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.errors import JobError
from pipeline.extracting.planning import extraction_id
from pipeline.ports.letters import Letters
from pipeline.ports.snapshots import Snapshots
from pipeline.replaying.ports import Outlines, Topics
from schemas.extraction import Outcome
from schemas.failure import LetterQuery
from schemas.job import Lost, Messages, Selection
from schemas.snapshot import Snapshot
from schemas.topics import DEAD, RETRY_TIERS, SNAPSHOT_READY, SNAPSHOT_REPLAY, Stage

PAGE: Final = 200
MOST: Final = 200_000
"""How many snapshots a list may have."""
READABLE: Final = (
    SNAPSHOT_READY.name,
    SNAPSHOT_REPLAY.name,
    *(tier.topic.name for tier in RETRY_TIERS[Stage.EXTRACTION]),
    DEAD[Stage.EXTRACTION].name,
)
"""The topics whose messages are about a snapshot."""

Listed = Callable[[str | None, int], Awaitable[Sequence[str]]]
"""Returns those ids of a list that are beyond one, so many at most, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a selection was found to be."""

    snapshot_ids: tuple[str, ...]
    """In order."""
    lost: tuple[Lost, ...] = ()

    async def after(self, cursor: str | None, limit: int) -> Sequence[str]:
        """Return those beyond one, so many at most."""
        beyond = [each for each in self.snapshot_ids if cursor is None or each > cursor]
        return beyond[:limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some of the snapshots of a selection."""

    snapshots: tuple[Snapshot, ...]
    cursor: str | None
    """What to go on after; none at the end."""


def check(selection: Selection) -> None:
    """Refuse what nothing can be, whatever there is. Pure.

    Raises:
        JobError: The message says what to ask for instead.
    """
    if selection.since and selection.until and selection.since >= selection.until:
        raise JobError("nothing is cut since a time and before an earlier one: swap the two")
    if Outcome.GONE in selection.outcomes:
        raise JobError("of what is gone there are no turns to extract: leave that outcome out")
    if selection.messages is not None:
        _check_messages(selection.messages)


def _check_messages(messages: Messages) -> None:
    if messages.topic not in READABLE:
        raise JobError(
            f"no message of the topic {messages.topic} is about a snapshot: those of"
            f" {', '.join(READABLE)} are"
        )
    first, end = messages.first_offset, messages.end_offset
    if messages.partition is None and (first is not None or end is not None):
        raise JobError("an offset means something in one partition only: name it, too")
    if first is not None and end is not None and first >= end:
        raise JobError("the first offset must be before the end: there is nothing between them")
    if messages.since and messages.until and messages.since >= messages.until:
        raise JobError("nothing is appended since a time and before an earlier one: swap the two")
    if messages.since and first is not None:
        raise JobError("say from which offset or from which time, not both")
    if messages.until and end is not None:
        raise JobError("say up to which offset or up to which time, not both")


class Selector:
    """Finds the snapshots of selections."""

    def __init__(
        self, *, snapshots: Snapshots, runs: Outlines, letters: Letters, topics: Topics
    ) -> None:
        self._snapshots = snapshots
        self._runs = runs
        self._letters = letters
        self._topics = topics

    async def found(self, selection: Selection) -> Listing | None:
        """Return what letters and messages say that a selection is; none if it goes by neither.

        Raises:
            JobError: It can't be anything; the message says why.
            BrokerUnavailableError: Kafka did not answer in time.
        """
        check(selection)
        named: set[str] | None = None
        lost: tuple[Lost, ...] = ()
        if selection.letters is not None:
            named = await self._of_letters(selection.letters)
        if selection.messages is not None:
            read = await self._topics.read(selection.messages)
            lost = read.lost
            ids = set(read.snapshot_ids)
            if lost:
                ids |= await self._instead(selection.messages, lost)
            if not ids:
                raise JobError("no message there is about a snapshot: nothing is selected")
            named = ids if named is None else named & ids
        if named is None:
            return None
        if len(named) > MOST:
            raise JobError(f"{len(named)} snapshots are more than {MOST}: narrow it down")
        return Listing(snapshot_ids=tuple(sorted(named)), lost=lost)

    async def page(
        self, selection: Selection, listed: Listed | None, *, after: str | None, limit: int
    ) -> Page:
        """Return the snapshots that follow, so many at most; fewer say nothing of the end.

        Args:
            selection: Which.
            listed: The list of one that goes by a list.
            after: Only those beyond this id.
            limit: So many at most.
        """
        # What is looked up of runs may leave out most of a page.
        size = PAGE if selection.version or selection.outcomes else limit
        among = None if listed is None else await listed(after, size)
        if among is not None and not among:
            return Page(snapshots=(), cursor=None)
        found = await self._snapshots.selected(selection, after=after, limit=size, among=among)
        kept = await self._counting(selection, found)
        if len(kept) > limit:
            return Page(snapshots=tuple(kept[:limit]), cursor=kept[limit - 1].snapshot_id)
        ids = [one.snapshot_id for one in found] if among is None else among
        return Page(snapshots=tuple(kept), cursor=ids[-1] if ids else None)

    async def each(self, selection: Selection, listed: Listed | None) -> AsyncGenerator[Snapshot]:
        """Yield all snapshots of a selection; arguments as for `page`."""
        page = await self.page(selection, listed, after=None, limit=PAGE)
        while page.cursor is not None:
            for one in page.snapshots:
                yield one
            page = await self.page(selection, listed, after=page.cursor, limit=PAGE)

    async def _counting(
        self, selection: Selection, found: Sequence[Snapshot]
    ) -> Sequence[Snapshot]:
        """Return those whose run that counts is as selected."""
        if not found or not (selection.version or selection.outcomes):
            return found
        run_of = {one.snapshot_id: extraction_id(one.snapshot_id, one.active_run) for one in found}
        outlines = await self._runs.outlines(list(run_of.values()))
        return [
            one
            for one in found
            if (run := outlines.get(run_of[one.snapshot_id])) is not None
            and selection.version in (None, run.version)
            and (not selection.outcomes or run.outcome in selection.outcomes)
        ]

    async def _of_letters(self, wanted: LetterQuery) -> set[str]:
        letters = await self._letters.matching(wanted)
        if not letters:
            raise JobError("no letter matches: `./afterturn letters list` shows what there is")
        named = {one.snapshot_id for one in letters if one.snapshot_id is not None}
        if not named:
            raise JobError(
                f"none of the {len(letters)} letters that match is about a snapshot: send them back"
                " with `./afterturn letters redrive`"
            )
        return named

    async def _instead(self, messages: Messages, lost: Sequence[Lost]) -> set[str]:
        """Return what MongoDB has of the time that is lost; perhaps more than was asked for."""
        ends = [each.until for each in lost]
        until = None if None in ends else max(each for each in ends if each is not None)
        if messages.until is not None:
            until = messages.until if until is None else min(until, messages.until)
        cut = Selection(since=messages.since, until=until)
        found: set[str] = set()
        cursor: str | None = None
        while page := await self._snapshots.selected(cut, after=cursor, limit=PAGE):
            cursor = page[-1].snapshot_id
            found |= {one.snapshot_id for one in page}
            if len(found) > MOST:
                break
        return found
