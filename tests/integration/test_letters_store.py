"""Dead letters on MongoDB: one a failure, and what is known of it stands."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.letters.grouping import grouped
from pipeline.ports.letters import LetterQuery
from pipeline.stores.letters import MongoLetters
from pipeline.stores.mongo import Database
from schemas.failure import Attempt, Coordinates, Failure, FailureClass, Letter

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def letter(*, created_at: datetime = NOW) -> Letter:
    failure = Failure(
        failure_class=FailureClass.UNDECODABLE, reason="no_json", exception="ValueError"
    )
    return Letter(
        letter_id="letter",
        stage="snapshot",
        failure_class=failure.failure_class,
        reason=failure.reason,
        disposition="content",
        fingerprint="0" * 16,
        action="Look at it.",
        attempts=(Attempt(failure=failure, failed_at=created_at),),
        original=Coordinates(topic="topic", partition=0, offset=1, timestamp_ms=0, group="group"),
        value=b"{",
        headers=(("h", None),),
        created_at=created_at,
    )


async def test_the_letter_of_a_message_that_comes_again_stays_as_it_is(db: Database) -> None:
    """Also whether it is on its topic: it is not sent twice for that."""
    letters = MongoLetters(db)
    await letters.put(letter())
    await letters.put(letter(created_at=NOW + timedelta(hours=1)))
    unsent = await letters.unsent(NOW_MS, limit=10)
    await letters.mark_sent("letter")
    await letters.put(letter())

    assert unsent == [letter()]
    assert await letters.unsent(NOW_MS, limit=10) == []
    assert await letters.count() == 1


async def test_letters_in_short_make_the_groups_that_whole_ones_make(db: Database) -> None:
    letters = MongoLetters(db)
    for place in range(7):
        at = NOW + timedelta(minutes=place)
        other = {"letter_id": f"letter-{place}", "fingerprint": f"{place % 3:016x}"}
        first = letter(created_at=at).model_copy(update=other)
        await letters.put(first)
        if place % 2:
            await letters.put(
                first.model_copy(update={"deaths": 2, "died_at": at + timedelta(hours=place)})
            )
    since = NOW + timedelta(hours=2)

    whole = grouped(await letters.matching(LetterQuery()), since=since)

    assert [group.letters for group in whole] == [3, 2, 2]
    assert grouped(await letters.summaries(LetterQuery()), since=since) == whole


async def test_letters_are_asked_for_by_several_projects_or_by_none(db: Database) -> None:
    letters = MongoLetters(db)
    for project in ("alpha", "beta", None):
        named = {"letter_id": f"of-{project}", "project_id": project}
        await letters.put(letter().model_copy(update=named))

    async def found(**wanted: Any) -> set[str]:
        return {one.letter_id for one in await letters.matching(LetterQuery(**wanted))}

    assert await found(projects=("alpha", None)) == {"of-alpha", "of-None"}
    assert await found(projects=("beta",)) == {"of-beta"}
    assert await found(projects=()) == set()
    assert await found(projects=("alpha", None), project_id="beta") == set()
    assert await found(projects=("alpha", None), project_id="alpha") == {"of-alpha"}
