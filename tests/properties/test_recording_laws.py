"""Whatever a caller hands over, it is stored as it is returned, or refused by name."""

from datetime import UTC, datetime
from typing import Any

import bson
from bson.codec_options import CodecOptions
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InvalidInputError
from pipeline.ids import OpaqueIds
from pipeline.ports.turns import IdempotencyKey, SessionState
from pipeline.recording import accept, accept_identity, compose
from pipeline.stores.turns import document_of, turn_from
from pipeline.tokens import count, load
from schemas.identity import SessionIdentity
from schemas.turn import TurnDraft

IDS = OpaqueIds(b"k" * 32)
WHOSE = SessionIdentity(user_id="ana", session_id="talk")
STATE = SessionState(identity=WHOSE, session=IDS.session(WHOSE, 1), incarnation=1, gaps={})
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

load()  # once, before any example is timed

texts = st.text(st.characters(exclude_categories=()), max_size=20)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary() | st.datetimes()
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts | st.integers(), inner, max_size=4)
        | st.tuples(inner)
    ),
    max_leaves=12,
)
anything = st.dictionaries(st.sampled_from([*TurnDraft.model_fields, "other"]), values)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
nearly_good = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system"]), "content": texts},
    optional={
        "metadata": st.dictionaries(texts, json_values, max_size=4),
        "created_at": st.datetimes(timezones=st.timezones()),
        "tool_name": texts,
        "is_error": st.booleans(),
        "tool_calls": st.lists(
            st.fixed_dictionaries({"id": texts, "name": texts, "arguments": json_values}),
            max_size=2,
        ),
        "idempotency_key": texts,
    },
)


@given(values | anything | nearly_good)
def test_nothing_but_a_named_rule_ever_comes_back(said: Any) -> None:
    try:
        accept(said)
    except InvalidInputError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.field.split(".")[0] in {*TurnDraft.model_fields, "turn"}


@given(values | st.dictionaries(st.sampled_from(["user_id", "session_id", "x"]), values))
def test_the_same_for_identities(said: Any) -> None:
    try:
        accept_identity(said)
    except InvalidInputError as error:
        assert error.problems


@given(nearly_good)
def test_what_is_returned_is_what_is_stored(said: dict[str, Any]) -> None:
    try:
        accepted = accept(said)
    except InvalidInputError:
        return
    turn = compose(
        accepted,
        identity=WHOSE,
        state=STATE,
        after=None,
        tokens=count(accepted.texts),
        now=NOW,
        ids=IDS,
    )
    stored = bson.encode(document_of(turn, IdempotencyKey(key="k", body=accepted.body())))
    options: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True, tzinfo=UTC)
    read = bson.decode(stored, options)  # pyright: ignore[reportUnknownMemberType] (mmap's stub)

    assert turn_from(read) == turn
    assert "\ufffd" in repr(turn) or turn.repairs == 0
    accepted.draft.model_dump_json()


@given(nearly_good)
def test_judging_twice_changes_nothing_more(said: dict[str, Any]) -> None:
    try:
        accepted = accept(said)
    except InvalidInputError:
        return
    again = accept(accepted.draft)

    assert again.draft == accepted.draft
    assert again.repairs == 0
