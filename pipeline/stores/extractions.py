"""The ledger of extraction on MongoDB.

Every change is one conditional `update_one` by `_id` with plain conditions: it either happens
whole, on the state it was decided from, or not at all.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pymongo import ASCENDING
from pymongo.errors import DuplicateKeyError

from pipeline.replaying.ports import Outline
from pipeline.stores.mongo import SERVER_NOW_MS, Collection, Database, Document, readable
from schemas.extraction import (
    BLANK,
    Claim,
    Difference,
    Extraction,
    NextMessage,
    Outcome,
    Part,
    PartState,
    Reply,
    SetAside,
)
from schemas.failure import Attempt, Letter
from schemas.memory import Kind

_BOOKKEEPING: Final = ("_id", "unsent_since_ms")


class MongoExtractions:
    """Port `Extractions` on the collection `extractions`."""

    def __init__(self, database: Database) -> None:
        self._collection: Collection = database["extractions"]

    async def ensure(self, new: Extraction) -> Extraction:
        """Return the extraction of this id, made as given where there is none. Idempotent."""
        document = new.model_dump()
        try:
            result = await self._collection.update_one(
                {"_id": new.extraction_id}, {"$setOnInsert": document}, upsert=True
            )
        except DuplicateKeyError:
            result = None
        if result is not None and result.upserted_id is not None:
            return new
        stored = await self.get(new.extraction_id)
        return stored if stored is not None else await self.ensure(new)

    async def get(self, extraction_id: str) -> Extraction | None:
        """Return one."""
        document = await self._collection.find_one({"_id": extraction_id})
        return None if document is None else _extraction(document)

    async def claim(
        self, extraction: Extraction, *, owner: str, message: str, now_ms: int, lease: timedelta
    ) -> Extraction | None:
        """Take it if it is as it was read and free.

        Concurrency: the fence is part of the condition, so of any number of workers that read the
        same state exactly one gets through.
        """
        held = extraction.claim
        is_taken_over = held is not None and held.owner == owner and held.message == message
        if held is not None and not is_taken_over and held.lease_until_ms > now_ms:
            return None
        is_crash = held is not None and not is_taken_over
        lease_ms = int(lease.total_seconds() * 1000)
        fence = extraction.fence + 1
        claim: Document = {
            "fence": fence,
            "owner": owner,
            "lease_until_ms": {"$add": [SERVER_NOW_MS, lease_ms]},
            "message": message,
            "ticket": extraction.next.ticket,
        }
        first_seen_ms = extraction.first_seen_ms + _waited_ms(extraction, now_ms)
        result = await self._collection.update_one(
            _as_read(extraction) | {"next.ticket": extraction.next.ticket},
            [
                {
                    "$set": {
                        "fence": fence,
                        "claim": claim,
                        "crashes": extraction.crashes + is_crash,
                        "first_seen_ms": first_seen_ms,
                        "held_since_ms": None,
                        "next.taken": True,
                    }
                }
            ],
        )
        if result.matched_count == 0 and not await self._is_claimed(
            extraction.extraction_id, fence=fence, owner=owner, message=message
        ):
            return None
        return extraction.model_copy(
            update={
                "fence": fence,
                "crashes": extraction.crashes + is_crash,
                "first_seen_ms": first_seen_ms,
                "held_since_ms": None,
                "next": extraction.next.model_copy(update={"taken": True}),
                "claim": Claim(
                    fence=fence,
                    owner=owner,
                    lease_until_ms=now_ms + lease_ms,
                    message=message,
                    ticket=extraction.next.ticket,
                ),
            }
        )

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
        """Keep an answer where that part has none; return the extraction as it then stands.

        Idempotent: the first stored answer stands, whoever's it was.
        """
        waiting: Document = {
            "_id": extraction.extraction_id,
            "outcome": None,
            f"parts.{part}.state": PartState.WAITING,
        }
        answered: Document = {
            f"parts.{part}.reply": reply.model_dump(),
            f"parts.{part}.version": version,
            f"parts.{part}.kinds": list(kinds),
            f"parts.{part}.state": PartState.ANSWERED,
        }
        # The version is fixed in the same update as the first answer: no kill comes between.
        is_first = extraction.version is None and await self._update(
            waiting | {"version": None}, answered | {"version": version, "revision": revision}
        )
        if not is_first:
            await self._update(waiting, answered)
        stored = await self.get(extraction.extraction_id)
        return extraction if stored is None else stored

    async def enlarge(self, extraction: Extraction, part: int, max_tokens: int) -> bool:
        """Give a waiting part another limit for its answer."""
        return await self._change(
            extraction,
            {"$set": {f"parts.{part}.max_tokens": max_tokens}},
            {f"parts.{part}.state": PartState.WAITING},
        )

    async def split(self, extraction: Extraction, part: int, halves: tuple[Part, Part]) -> bool:
        """Replace a waiting part by two, appended."""
        first = len(extraction.parts)
        return await self._change(
            extraction,
            {
                "$set": {
                    f"parts.{part}.state": PartState.SPLIT,
                    f"parts.{first}": halves[0].model_dump(),
                    f"parts.{first + 1}": halves[1].model_dump(),
                }
            },
            {f"parts.{part}.state": PartState.WAITING},
            is_done=lambda now: now.parts[part].state is PartState.SPLIT,
        )

    async def bury(
        self, extraction: Extraction, letters: Mapping[int, Letter], attempt: Attempt
    ) -> bool:
        """Mark parts dead, and keep their letters and the attempt, in one update."""
        states: Document = {}
        as_read: Document = {}
        for part, letter in letters.items():
            as_read[f"parts.{part}.state"] = extraction.parts[part].state
            states[f"parts.{part}.state"] = PartState.DEAD
            states[f"parts.{part}.letter_id"] = letter.letter_id
        return await self._change(
            extraction,
            {
                "$set": states,
                "$push": {
                    "attempts": attempt.model_dump(),
                    "unsent_letters": {
                        "$each": [letter.model_dump() for letter in letters.values()]
                    },
                },
                "$min": {"unsent_since_ms": _epoch_ms(attempt.failed_at)},
            },
            as_read,
            is_done=lambda now: all(
                (now.parts[part].state, now.parts[part].letter_id)
                == (PartState.DEAD, letter.letter_id)
                for part, letter in letters.items()
            ),
        )

    async def redrive(
        self,
        extraction: Extraction,
        part: int,
        replacement: Sequence[Part],
        following: NextMessage,
    ) -> bool:
        """Open it again: a dead part is replaced, the others of the replacement are appended."""
        fence = extraction.fence + 1
        changed = {f"parts.{part}": replacement[0].model_dump()}
        for place, added in enumerate(replacement[1:], len(extraction.parts)):
            changed[f"parts.{place}"] = added.model_dump()
        result = await self._collection.update_one(
            {
                "_id": extraction.extraction_id,
                "fence": extraction.fence,
                "outcome": extraction.outcome,
                f"parts.{part}.state": PartState.DEAD,
            },
            {
                "$set": {
                    **changed,
                    "fence": fence,
                    "claim": None,
                    "crashes": 0,
                    "outcome": None,
                    "settled_at": None,
                    "attempts_before": len(extraction.attempts),
                    "first_seen_ms": following.scheduled_ms,
                    "held_since_ms": None,
                    "next": following.model_dump(),
                },
                "$min": {"unsent_since_ms": following.scheduled_ms},
            },
        )
        if result.matched_count == 1:
            return True
        now = await self.get(extraction.extraction_id)
        return now is not None and now.next.ticket == following.ticket

    async def schedule(
        self,
        extraction: Extraction,
        following: NextMessage,
        *,
        attempt: Attempt | None,
        ends_claim: bool,
        waits_free: bool = False,
    ) -> bool:
        """Replace the live message by another, as unsent, with the attempt, in one update."""
        changes: Document = {"next": following.model_dump()}
        if waits_free:
            now_ms = following.scheduled_ms
            free_ms = _waited_ms(extraction, now_ms) + following.due_ms - now_ms
            changes |= {"first_seen_ms": extraction.first_seen_ms + free_ms, "held_since_ms": None}
        if ends_claim:
            changes |= {"claim": None, "crashes": 0}
        update: Document = {"$set": changes, "$min": {"unsent_since_ms": following.scheduled_ms}}
        if attempt is not None:
            update["$push"] = {"attempts": attempt.model_dump()}
        # Who holds the claim decides, whatever a redelivery of his message was put off to.
        condition: Document = (
            {"claim.fence": extraction.fence}
            if ends_claim
            else {"next.ticket": extraction.next.ticket}
        )
        return await self._change(
            extraction,
            update,
            condition,
            is_done=lambda now: now.next.ticket == following.ticket,
        )

    async def settle(
        self,
        extraction: Extraction,
        outcome: Outcome,
        *,
        set_aside: Mapping[int, Sequence[SetAside]],
        settled_at: datetime,
    ) -> bool:
        """Fix the outcome and what was set aside, and end the claim, in one update."""
        aside = {
            f"parts.{part}.set_aside": [item.model_dump() for item in items]
            for part, items in set_aside.items()
        }
        return await self._change(
            extraction,
            {
                "$set": {
                    **aside,
                    "outcome": outcome,
                    "settled_at": settled_at,
                    "claim": None,
                    "crashes": 0,
                }
            },
            is_done=lambda now: (now.outcome, now.settled_at) == (outcome, settled_at),
        )

    async def runs_of(self, snapshot_id: str) -> list[Extraction]:
        """Return all runs over a snapshot, the live one first."""
        cursor = self._collection.find({"snapshot_id": snapshot_id}).sort("run", ASCENDING)
        return [_extraction(document) async for document in cursor]

    async def compare(self, extraction_id: str, difference: Difference) -> None:
        """Keep what it makes otherwise, where that is not known yet. Idempotent."""
        await self._update(
            {"_id": extraction_id, "difference": None}, {"difference": difference.model_dump()}
        )

    async def take_over(self, extraction_id: str) -> None:
        """It counts now. Idempotent."""
        await self._update({"_id": extraction_id}, {"took_over": True})

    async def drop_answers(self, extraction_id: str) -> None:
        """Keep of its answers what they cost, and no words. Idempotent."""
        extraction = await self.get(extraction_id)
        if extraction is None:
            return
        dropped: Document = {
            f"parts.{place}.reply.answer": {}
            for place, part in enumerate(extraction.parts)
            if part.reply is not None
        }
        if dropped:
            await self._update({"_id": extraction_id}, dropped)

    async def of_job(self, job_id: str, *, is_open: bool | None = None) -> list[Extraction]:
        """Return the runs that a replay began, without their answers."""
        wanted: Document = {"job_id": job_id}
        if is_open is not None:
            wanted["outcome"] = None if is_open else {"$ne": None}
        cursor = self._collection.find(wanted, {"parts.reply": 0, "unsent_letters": 0})
        return [_extraction(document) async for document in cursor]

    async def outlines(self, extraction_ids: Sequence[str]) -> dict[str, Outline]:
        """Return of those runs that there are what they came to, by id."""
        cursor = self._collection.find(
            {"_id": {"$in": list(extraction_ids)}}, {"outcome": 1, "version": 1}
        )
        return {
            document["_id"]: Outline(outcome=document["outcome"], version=document["version"])
            async for document in cursor
        }

    async def blank(
        self, extraction_id: str, items: Mapping[int, Sequence[SetAside]]
    ) -> Extraction | None:
        """Take items, and the summaries beside them, out of the stored answers of parts.

        Idempotent: an answer that is stored is never replaced, so an item keeps its place.
        """
        blanked: Document = {}
        for part, gone in items.items():
            answer = f"parts.{part}.reply.answer"
            blanked[f"{answer}.summary"] = ""
            blanked |= {f"{answer}.{item.kind}.{item.index}": BLANK for item in gone}
        if blanked:
            await self._collection.update_one({"_id": extraction_id}, {"$set": blanked})
        return await self.get(extraction_id)

    async def release(self, extraction: Extraction) -> None:
        """Give a claim back as if it had not been taken: no crash, no attempt."""
        await self._change(extraction, {"$set": {"claim": None}})

    async def hold(self, extraction_id: str, *, since_ms: int) -> None:
        """Let its age stand still from a moment on, until the next claim. Idempotent."""
        await self._collection.update_one(
            {"_id": extraction_id, "outcome": None, "claim": None, "held_since_ms": None},
            {"$set": {"held_since_ms": since_ms}},
        )

    async def expire_claims(self) -> int:
        """End every lease at once; return how many. Whoever comes next counts each as a crash.

        For a ledger of which it is known that nobody works on it. Idempotent.
        """
        held: Document = {"outcome": None, "claim.lease_until_ms": {"$gt": 0}}
        result = await self._collection.update_many(held, {"$set": {"claim.lease_until_ms": 0}})
        return result.modified_count

    async def mark_sent(self, extraction_id: str, ticket: str) -> None:
        """The message of this ticket is acknowledged. Idempotent."""
        await self._collection.update_one(
            {"_id": extraction_id, "next.ticket": ticket}, {"$set": {"next.sent": True}}
        )
        await self._forget_unsent(extraction_id)

    async def drop_letters(self, extraction_id: str, letter_ids: Sequence[str]) -> None:
        """These letters are safe in their own collection. Idempotent."""
        await self._collection.update_one(
            {"_id": extraction_id},
            {"$pull": {"unsent_letters": {"letter_id": {"$in": list(letter_ids)}}}},
        )
        await self._forget_unsent(extraction_id)

    async def unsent(self, before_ms: int, limit: int) -> list[Extraction]:
        """Return extractions with something unsent since before then, oldest first."""
        cursor = (
            self._collection.find({"unsent_since_ms": {"$lte": before_ms}})
            .sort("unsent_since_ms", ASCENDING)
            .limit(limit)
        )
        return await readable(cursor, _extraction)

    async def _forget_unsent(self, extraction_id: str) -> None:
        """Take the mark away where nothing is unsent any more."""
        await self._collection.update_one(
            {"_id": extraction_id, "next.sent": True, "unsent_letters": []},
            {"$unset": {"unsent_since_ms": ""}},
        )

    async def _update(self, condition: Document, fields: Document) -> bool:
        result = await self._collection.update_one(condition, {"$set": fields})
        return result.matched_count == 1

    async def _is_claimed(
        self, extraction_id: str, *, fence: int, owner: str, message: str
    ) -> bool:
        """Return whether this very claim is the one that stands: see `_change`."""
        own = {"claim.fence": fence, "claim.owner": owner, "claim.message": message}
        found = await self._collection.find_one({"_id": extraction_id} | own, {"_id": 1})
        return found is not None

    async def _change(
        self,
        extraction: Extraction,
        update: Document,
        condition: Document | None = None,
        *,
        is_done: Callable[[Extraction], bool] | None = None,
    ) -> bool:
        """Update on the state it was decided from; return whether it is done.

        The driver sends an update again whose answer was lost, and a server that does not know it
        again finds the state changed, by us: that is told by what only this change makes.
        """
        result = await self._collection.update_one(_as_read(extraction) | (condition or {}), update)
        if result.matched_count == 1 or is_done is None:
            return result.matched_count == 1
        now = await self.get(extraction.extraction_id)
        return now is not None and now.fence == extraction.fence and is_done(now)


def _waited_ms(extraction: Extraction, now_ms: int) -> int:
    """Return how long nobody could try it: held, or behind what was held in its partition."""
    since_ms = extraction.held_since_ms if extraction.next.taken else extraction.next.due_ms
    return 0 if since_ms is None else max(0, now_ms - since_ms)


def _as_read(extraction: Extraction) -> Document:
    """Return the condition that nobody claimed or settled it since it was read."""
    return {"_id": extraction.extraction_id, "fence": extraction.fence, "outcome": None}


def _extraction(document: dict[str, Any]) -> Extraction:
    fields = {name: value for name, value in document.items() if name not in _BOOKKEEPING}
    return Extraction.model_validate(fields)


def _epoch_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
