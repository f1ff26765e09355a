"""Dead letters on MongoDB: one a failure, and what is known of it stands."""

from datetime import UTC, datetime, timedelta

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
