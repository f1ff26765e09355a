"""What a caller may say, what is repaired, what is refused, and that nothing of it is repeated."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from pipeline.errors import InvalidInputError
from pipeline.ids import OpaqueIds
from pipeline.ports.turns import NewestTurn, SessionState
from pipeline.recording import accept, accept_identity, compose
from schemas.event import moment
from schemas.identity import SessionIdentity
from schemas.turn import CONTENT_BYTES, METADATA_BYTES, ToolCall, Turn, TurnDraft

IDS = OpaqueIds(b"k" * 32)
NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
WHOSE = SessionIdentity(user_id="ana", session_id="talk")
STATE = SessionState(identity=WHOSE, session=IDS.session(WHOSE, 1), incarnation=1, gaps={})
SECRET = "hunter2"


def said(**fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": "I like tea."} | fields


BEFORE = NewestTurn(seq=2, effective_at=NOW - timedelta(days=900))


def turn(*, after: NewestTurn | None = BEFORE, **fields: Any) -> Turn:
    return compose(
        accept(said(**fields)),
        identity=WHOSE,
        state=STATE,
        after=after,
        tokens=4,
        now=NOW,
        ids=IDS,
    )


def problems(**fields: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        accept(said(**fields))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return [f"{problem.field}: {problem.rule}" for problem in caught.value.problems]


@pytest.mark.parametrize(
    "text",
    [
        "👩‍👩‍👧",
        "می‌خواهم",
        "क्‍ष",
        "\u200fمرحبا\u200e",
        "nul \x00 inside",
        "e\u0301 is not é",
        "\ufeffbom",
        " kept ",
    ],
)
def test_text_is_kept_to_the_byte(text: str) -> None:
    stored = turn(content=text, metadata={text.replace("\x00", ""): text})

    assert stored.content == text
    assert list((stored.metadata or {}).values()) == [text]
    assert stored.repairs == 0


def test_lone_surrogates_become_replacement_characters_and_are_counted() -> None:
    stored = turn(
        content="half \ud83d emoji \udc00",
        metadata={"k\ud800": ["\udfff", {"x": "a\ud800b"}]},
    )

    assert stored.content == "half \ufffd emoji \ufffd"
    assert stored.metadata == {"k\ufffd": ["\ufffd", {"x": "a\ufffdb"}]}
    assert stored.repairs == 5


def test_a_pair_that_came_in_two_halves_is_one_character_and_no_repair() -> None:
    stored = turn(content="\ud83d" + "\ude00")

    assert stored.content == "😀"
    assert stored.repairs == 0


def test_tool_arguments_are_repaired_too() -> None:
    call = {"id": "1", "name": "look\ud800", "arguments": {"q": "\ud800"}}
    stored = turn(role="assistant", content="", tool_calls=[call])

    assert stored.tool_calls == (ToolCall(id="1", name="look\ufffd", arguments={"q": "\ufffd"}),)
    assert stored.repairs == 2


def test_keys_that_differ_only_in_what_is_lost_are_refused() -> None:
    assert problems(metadata=dict.fromkeys(["\ud800", "\ud801"], 1)) == [
        "metadata: must have keys that differ in more than lone surrogates"
    ]


def test_a_draft_and_a_mapping_are_judged_alike() -> None:
    fields = said(role="assistant", tool_calls=[{"id": "1", "name": "x", "arguments": [1]}])

    assert accept(TurnDraft.model_validate(fields)) == accept(fields)


def test_empty_metadata_is_none() -> None:
    assert turn(metadata={}).metadata is None


def test_the_callers_objects_are_not_changed() -> None:
    metadata = {"a": ["\ud800"]}
    fields = said(metadata=metadata)
    accept(fields)

    assert metadata == {"a": ["\ud800"]}
    assert fields["metadata"] is metadata


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "2026-03-01T12:00:00.123+00:00"),
        ("2025-01-02T03:04:05.678901+02:00", "2025-01-02T01:04:05.678+00:00"),
        ("2062-01-01T00:00:00Z", "2026-03-01T12:00:00.123+00:00"),
        ("9999-12-31T23:59:59-12:00", None),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
    ],
)
def test_moments_are_milliseconds_of_utc_and_never_in_the_future(
    given: str | None, expected: str | None
) -> None:
    if expected is None:
        assert problems(created_at=given) == ["created_at: must lie in the years 1 to 9999 of UTC"]
        return
    stored = turn(created_at=given)

    assert stored.created_at == datetime.fromisoformat(expected)
    assert stored.created_at.utcoffset() == timedelta(0)
    assert stored.recorded_at == datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=UTC)


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def wide_and_deep() -> dict[str, Any]:
    value: dict[str, Any] = {"x": 1}
    for _ in range(31):
        value = {"a": value, "b": value}
    return value


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"role": SECRET}, "role: must be one of 'user', 'assistant', 'tool' or 'system'"),
        ({"role": [SECRET]}, "role: must be one of 'user', 'assistant', 'tool' or 'system'"),
        ({"role": None}, "role: must be one of 'user', 'assistant', 'tool' or 'system'"),
        ({"content": ""}, "content: must not be empty"),
        ({"content": " \n\t"}, "content: must not be empty"),
        ({"content": {SECRET: 1}}, "content: must be text"),
        ({"content": b"bytes"}, "content: must be text, not bytes"),
        (
            {"content": "é" * (CONTENT_BYTES // 2 + 1)},
            f"content: must be at most {CONTENT_BYTES} bytes of UTF-8",
        ),
        (
            {"metadata": {"x": "y" * 16_000_000}},
            f"metadata: must be at most {METADATA_BYTES} bytes of UTF-8",
        ),
        (
            {"metadata": {"x": "é" * (METADATA_BYTES // 2)}},
            f"metadata: must be at most {METADATA_BYTES} bytes of JSON",
        ),
        ({"metadata": {SECRET: {1, 2}}}, "metadata: must hold JSON values only"),
        (
            {"metadata": {SECRET: datetime(2026, 1, 1, tzinfo=UTC)}},
            "metadata: must hold JSON values only",
        ),
        ({"metadata": {SECRET: date(2026, 1, 1)}}, "metadata: must hold JSON values only"),
        ({"metadata": {SECRET: (1, 2)}}, "metadata: must hold JSON values only"),
        ({"metadata": {SECRET: object()}}, "metadata: must hold JSON values only"),
        ({"metadata": {SECRET: b"x"}}, "metadata: must be text, not bytes"),
        ({"metadata": {SECRET: float("nan")}}, "metadata: must hold finite numbers only"),
        ({"metadata": {SECRET: float("-inf")}}, "metadata: must hold finite numbers only"),
        ({"metadata": {SECRET: 2**63}}, "metadata: must hold whole numbers of 64 bits only"),
        ({"metadata": {1: SECRET}}, "metadata: must be text"),
        ({"metadata": {"\x00": SECRET}}, "metadata: must hold no NUL in a key"),
        ({"metadata": [SECRET]}, "metadata: must be an object"),
        ({"metadata": SECRET}, "metadata: must be an object"),
        ({"metadata": deep(33)}, "metadata: must not nest deeper than 32 levels"),
        ({"metadata": deep(100_000)}, "metadata: must not nest deeper than 32 levels"),
        ({"metadata": {"a": itself()}}, "metadata: must not nest deeper than 32 levels"),
        (
            {"metadata": wide_and_deep()},
            f"metadata: must be at most {METADATA_BYTES} bytes of UTF-8",
        ),
        ({"created_at": datetime(2026, 1, 1)}, "created_at: must say its offset from UTC"),  # noqa: DTZ001 (the point)
        ({"created_at": "2026-01-01T00:00:00"}, "created_at: must say its offset from UTC"),
        ({"created_at": SECRET}, "created_at: is not valid"),
        ({"created_at": 10**400}, "created_at: is not valid"),
        (
            {"created_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))},
            "created_at: must lie in the years 1 to 9999 of UTC",
        ),
        ({"idempotency_key": "  "}, "idempotency_key: must not be blank"),
        ({"idempotency_key": "k" * 257}, "idempotency_key: must have at most 256 characters"),
        ({"model_name": ""}, "model_name: must have at least 1 character"),
        ({"is_error": SECRET}, "is_error: must be true or false"),
        ({"tool_calls": [{"id": "1", "name": "x"}]}, "tool_calls: belong to the role assistant"),
        ({"tool_calls": SECRET}, "tool_calls: must be a list"),
        ({"tool_calls": [SECRET]}, "tool_calls.0: must be an object"),
        (
            {"tool_calls": [{"id": "1", "name": ""}]},
            "tool_calls.0.name: must have at least 1 character",
        ),
        (
            {"tool_calls": [{"id": "1", "name": "x", SECRET: 1}]},
            "tool_calls.0: has a field that nobody declared",
        ),
        (
            {"tool_calls": [{"id": "1", "name": "x", "arguments": {SECRET: {1}}}]},
            "tool_calls.0.arguments: must hold JSON values only",
        ),
        (
            {"tool_calls": [{"id": "1", "name": "x", "arguments": {SECRET: 2**70}}]},
            "tool_calls.0.arguments: must hold whole numbers of 64 bits only",
        ),
        ({SECRET: 1}, "turn: has a field that nobody declared"),
        ({7: SECRET}, "turn: has a field that nobody declared"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_field_and_rule_only(
    fields: dict[Any, Any], expected: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        accept({**said(), **fields})

    assert expected in [f"{each.field}: {each.rule}" for each in caught.value.problems]
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("whole", [None, 5, "text", [1], b"x", object()])
def test_what_is_no_object_is_refused(whole: object) -> None:
    with pytest.raises(InvalidInputError, match="turn: must be an object"):
        accept(whole)


def test_an_assistant_that_calls_a_tool_may_say_nothing() -> None:
    call = {"id": "1", "name": "weather", "arguments": {"city": "Porto"}}

    assert turn(role="assistant", content="", tool_calls=[call]).content == ""


def test_no_more_than_twenty_problems_are_told() -> None:
    with pytest.raises(InvalidInputError) as caught:
        accept(said(role="assistant", tool_calls=[{"id": "", "name": ""} for _ in range(100)]))

    assert len(caught.value.problems) == 20


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ({"user_id": " ", "session_id": "s"}, "user_id: must not be blank"),
        ({"user_id": "u", "session_id": ""}, "session_id: must not be blank"),
        ({"user_id": "u"}, "session_id: is required"),
        ({"user_id": "a\ud800", "session_id": "s"}, "user_id: must hold no lone surrogate"),
        ({"user_id": "a\x00", "session_id": "s"}, "user_id: must hold no control character"),
        ({"user_id": "u" * 257, "session_id": "s"}, "user_id: must have at most 256 characters"),
        ({"user_id": "u", "session_id": "s", SECRET: 1}, "turn: has a field that nobody declared"),
        ([SECRET], "turn: must be an object"),
    ],
)
def test_an_identity_is_kept_to_the_letter_or_refused(identity: object, expected: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        accept_identity(identity)

    assert [f"{each.field}: {each.rule}" for each in caught.value.problems] == [expected]


def test_two_drafts_have_one_body_only_if_they_say_the_same() -> None:
    body = accept(said(metadata={"a": 1, "b": 2}, idempotency_key="one")).body()

    assert accept(said(metadata={"b": 2, "a": 1}, idempotency_key="two")).body() == body
    assert accept(said(metadata={"b": 2, "a": True}, idempotency_key="one")).body() != body
    assert accept(said(content="I like tea", metadata={"a": 1, "b": 2})).body() != body


def test_the_first_turn_has_the_first_place() -> None:
    assert [turn(after=None).seq, turn().seq] == [1, 3]


def test_an_effective_time_never_goes_back_and_never_leaves_the_present() -> None:
    """It is the running maximum of when turns were said, and none is said after it is recorded."""
    now = moment(NOW)
    early, late = now - timedelta(days=9), now - timedelta(days=1)
    first = turn(after=None, created_at=late.isoformat())
    after = NewestTurn(seq=1, effective_at=first.effective_at)

    assert first.effective_at == late
    assert turn(after=after, created_at=early.isoformat()).effective_at == late
    assert turn(after=after, created_at=(now + timedelta(days=99)).isoformat()).effective_at == now
    assert turn(after=after).effective_at == now
