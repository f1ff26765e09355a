"""What the steps need of the ledger of extraction."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from schemas.extraction import Difference, Extraction, NextMessage, Outcome, Part, Reply, SetAside
from schemas.failure import Attempt, Letter
from schemas.memory import Kind


class Extractions(Protocol):
    """The ledger of extraction: who works on what, what was answered, what became of it.

    Every change is conditional on what it was decided from, so that of two workers one at most
    gets through; false or none says that this one did not.
    """

    async def ensure(self, new: Extraction) -> Extraction:
        """Return the extraction of this id, made as given where there is none."""
        ...

    async def get(self, extraction_id: str) -> Extraction | None:
        """Return one."""
        ...

    async def claim(
        self, extraction: Extraction, *, owner: str, message: str, now_ms: int, lease: timedelta
    ) -> Extraction | None:
        """Take it, if it is as it was read and nobody else holds it: the fence rises by one.

        The lease begins now, in server time. A lease of somebody else that had run out without a
        recorded end counts as a crash. A claim of this owner on this very message is taken over.
        """
        ...

    async def store_reply(
        self,
        extraction: Extraction,
        part: int,
        reply: Reply,
        *,
        version: str,
        revision: int = 0,
        kinds: Sequence[Kind] = tuple(Kind),
    ) -> Extraction:
        """Keep an answer where that part has none, whoever's fence, and what it was asked for.

        The version, and the revision of its project's settings, are fixed with the first.

        Returns the extraction as it stands afterwards, with this reply or the one before it.
        """
        ...

    async def enlarge(self, extraction: Extraction, part: int, max_tokens: int) -> bool:
        """Give a waiting part another limit for its answer."""
        ...

    async def split(self, extraction: Extraction, part: int, halves: tuple[Part, Part]) -> bool:
        """Replace a waiting part by two, appended."""
        ...

    async def bury(
        self, extraction: Extraction, letters: Mapping[int, Letter], attempt: Attempt
    ) -> bool:
        """Mark parts dead, keep a letter of each as unsent and the attempt that was their last."""
        ...

    async def schedule(
        self,
        extraction: Extraction,
        following: NextMessage,
        *,
        attempt: Attempt | None,
        ends_claim: bool,
        waits_free: bool = False,
    ) -> bool:
        """Replace the live message by another, as unsent; keep the failed attempt if there was one.

        What it waits is part of its age, unless it `waits_free`.

        A deferral, which leaves the claim to its holder, is conditional on the ticket too: what was
        scheduled by somebody else is never overwritten by it.
        """
        ...

    async def settle(
        self,
        extraction: Extraction,
        outcome: Outcome,
        *,
        set_aside: Mapping[int, Sequence[SetAside]],
        settled_at: datetime,
    ) -> bool:
        """Fix the outcome, and by part what was set aside; end the claim."""
        ...

    async def blank(
        self, extraction_id: str, items: Mapping[int, Sequence[SetAside]]
    ) -> Extraction | None:
        """Take items, and the summaries beside them, out of the stored answers of parts.

        Idempotent. Returns the extraction as it stands then.
        """
        ...

    async def release(self, extraction: Extraction) -> None:
        """Give a claim back as if it had not been taken: no crash, no attempt."""
        ...

    async def hold(self, extraction_id: str, *, since_ms: int) -> None:
        """Let its age stand still from a moment on, until the next claim. Idempotent."""
        ...

    async def mark_sent(self, extraction_id: str, ticket: str) -> None:
        """The message of this ticket is acknowledged. Idempotent."""
        ...

    async def redrive(
        self,
        extraction: Extraction,
        part: int,
        replacement: Sequence[Part],
        following: NextMessage,
    ) -> bool:
        """Open it again: a dead part is replaced, the others of the replacement are appended.

        Whoever works on the others loses his claim; ladders and age begin anew.
        """
        ...

    async def runs_of(self, snapshot_id: str) -> list[Extraction]:
        """Return all runs over a snapshot, the live one first."""
        ...

    async def compare(self, extraction_id: str, difference: Difference) -> None:
        """Keep what it makes otherwise, where that is not known yet. Idempotent."""
        ...

    async def take_over(self, extraction_id: str) -> None:
        """It counts now. Idempotent."""
        ...

    async def drop_answers(self, extraction_id: str) -> None:
        """Keep of its answers what they cost, and no words. Idempotent."""
        ...

    async def of_job(self, job_id: str, *, is_open: bool | None = None) -> list[Extraction]:
        """Return the runs that a replay began, without their answers.

        Args:
            job_id: The replay.
            is_open: Only those without an outcome, or only those with one; none: all.
        """
        ...

    async def drop_letters(self, extraction_id: str, letter_ids: Sequence[str]) -> None:
        """These letters are safe in their own collection. Idempotent."""
        ...

    async def unsent(self, before_ms: int, limit: int) -> list[Extraction]:
        """Return extractions with a message or letter unsent since before then, oldest first."""
        ...
