"""Laws of secrets, tokens and buckets, whatever happens in whatever order."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.access.rates import Buckets, Rate, taken
from pipeline.access.rights import SECRET_BYTES, Secrets, retired, revoked, rotated, secret_from
from pipeline.access.tokens import Tokens
from pipeline.errors import AccountError, UnauthenticatedError
from schemas.access import SECRETS, Role, ServiceAccount, StoredSecret

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
KEYED = Secrets(b"k" * 32)
TOKENS = Tokens(b"t" * 32)
EMPTY = ServiceAccount(
    account_id="sa_1", name="a", project_id="alpha", role=Role.AGENT, created_at=NOW
)
GOOD = TOKENS.make(EMPTY, "s1", token_id="t1", now_ms=NOW_MS)
FEW = st.builds(Rate, burst=st.integers(1, 4), per_second=st.sampled_from([0.1, 1.0, 3.0]))
RATES = st.builds(Rate, burst=st.integers(1, 50), per_second=st.floats(0.01, 200, allow_nan=False))


@given(st.lists(st.sampled_from(["rotate", "retire", "revoke"]), max_size=12))
def test_the_valid_secrets_are_the_newest_ones_and_at_most_two(acts: list[str]) -> None:
    account, made, alive = EMPTY, list[str](), list[str]()
    for act in ["rotate", *acts]:
        try:
            match act:
                case "rotate":
                    secret = secret_from(len(made).to_bytes(SECRET_BYTES))
                    made.append(secret)
                    kept = StoredSecret(
                        secret_id=str(len(made)),
                        digest=KEYED.digest("sa_1", secret),
                        created_at=NOW,
                    )
                    account = rotated(account, kept)
                    alive.append(secret)
                case "retire":
                    account = retired(account)
                    del alive[0]
                case _:
                    account = revoked(account, NOW)
                    alive.clear()
        except AccountError:
            continue
        valid = [secret for secret in made if KEYED.matching(account, secret) is not None]
        assert valid == alive
        assert len(valid) <= SECRETS
        assert valid or account.revoked_at is not None


@given(st.integers(0, len(GOOD) - 1), st.characters(codec="ascii"))
def test_a_token_with_another_character_anywhere_is_none(place: int, character: str) -> None:
    changed = GOOD[:place] + character + GOOD[place + 1 :]
    # The last character of a signature has two bits that carry nothing.
    if changed == GOOD or place == len(GOOD) - 1:
        return
    with pytest.raises(UnauthenticatedError):
        TOKENS.read(changed, now_ms=NOW_MS)


@given(st.text(max_size=200))
@example("\ud800")
def test_no_text_is_taken_for_a_token_and_none_is_a_defect(text: str) -> None:
    with pytest.raises(UnauthenticatedError):
        TOKENS.read(text, now_ms=NOW_MS)


@given(FEW, st.lists(st.sampled_from([0.0, 0.0, 0.3, 1.0, 60.0]), max_size=100))
def test_no_span_lets_more_through_than_burst_and_rate(rate: Rate, pauses: list[float]) -> None:
    bucket, now, admitted = None, 0.0, list[float]()
    for pause in pauses:
        now += pause
        bucket, wait = taken(bucket, rate, now)
        if wait == 0:
            admitted.append(now)
    for place, begin in enumerate(admitted):
        for count, end in enumerate(admitted[place:], start=1):
            assert count <= rate.burst + (end - begin) * rate.per_second + 0.01


@given(RATES, st.lists(st.floats(0, 5, allow_nan=False), max_size=50))
def test_who_waits_as_told_is_let_in_and_who_is_earlier_is_not(
    rate: Rate, pauses: list[float]
) -> None:
    bucket, now = None, 0.0
    for pause in pauses:
        now += pause
        bucket, wait = taken(bucket, rate, now)
        if wait:
            assert taken(bucket, rate, now + wait)[1] == 0
            assert taken(bucket, rate, now + wait * 0.9 - 0.001)[1] > 0


@given(RATES, st.floats(-1e6, 1e6, allow_nan=False))
def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing(rate: Rate, jump: float) -> None:
    now = 1e6
    bucket, wait = taken(None, rate, now)
    for _ in range(rate.burst - 1):
        assert wait == 0
        bucket, wait = taken(bucket, rate, min(now, jump))
    assert wait == 0
    bucket, wait = taken(bucket, rate, min(now, jump))

    assert wait > 0
    assert taken(bucket, rate, now + wait)[1] == 0


@given(st.lists(st.integers(0, 20), max_size=100), st.integers(1, 5))
def test_buckets_are_bounded_and_one_key_costs_no_other(keys: list[int], most: int) -> None:
    buckets = Buckets(Rate(burst=1, per_second=0.001), keys=most)
    remembered: list[int] = []
    for key in keys:
        is_let_in = buckets.take(str(key), 0.0) == 0
        assert is_let_in == (key not in remembered)
        remembered = [*(each for each in remembered if each != key), key][-most:]
        assert len(buckets) == len(remembered)
