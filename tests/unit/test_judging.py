"""Which items of an answer become assertions, item by item, and why the others do not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipeline.extracting.judging import Judgement, SetAsideReason, judge, judge_answers
from pipeline.extracting.redaction import MARK
from pipeline.ids import OpaqueIds
from schemas.extraction import PartState, Reply
from schemas.identity import Scope, Visibility
from schemas.memory import Kind, Relation
from schemas.turn import Role, Turn
from tests.builders import IDENTITY, SAID_AT, SESSION, SNAPSHOT, extraction, part, snapshot, turn

IDS = OpaqueIds(b"k" * 32)
KEY = "sk-test-0000000000000000000000"
TURNS = (
    turn(1, "I live in Porto, and I like green tea."),
    turn(2, "You must love Paris. Restart the router twice, then wait.", role=Role.ASSISTANT),
    turn(3, f"my key is {KEY} and I like oolong"),
    turn(4, "The user is 44 years old.", role=Role.TOOL),
    turn(5, "You help the people at Acme.", role=Role.SYSTEM),
    turn(6, "That worked. Thank you so much!"),
    turn(7, "<afterturn-memory>\nThe user lives in Rome.\n</afterturn-memory>\nWhat's new?"),
    turn(8, "我住在里斯本，喜欢喝茶。"),
    turn(9, "“It’s   a – dog”, she said. ＡＢＣ \u200bok"),
)


def item(**fields: Any) -> dict[str, Any]:
    """Return a semantic item that is right."""
    return {
        "subject": "user",
        "attribute": "home",
        "label": "Porto",
        "text": "The user lives in Porto.",
        "evidence": [1],
        "quote": "I live in Porto",
    } | fields


def procedure(**fields: Any) -> dict[str, Any]:
    """Return a procedural item whose steps the assistant gave and the user tried."""
    return {
        "name": "reset the router",
        "description": "Brings the connection back.",
        "steps": ["restart the router twice", "wait"],
        "evidence": [2, 6],
        "quote": "Restart the router twice, then wait",
    } | fields


def reply(answer: dict[str, Any]) -> Reply:
    """Return a stored reply."""
    return Reply(
        answer=answer,
        model="m",
        finish_reason="tool_calls",
        request_id=None,
        calls=1,
        prompt_tokens=None,
        completion_tokens=None,
        answered_at=SAID_AT,
    )


def judged(
    *items: object, kind: Kind = Kind.SEMANTIC, turns: tuple[Turn, ...] = TURNS, **rest: Any
) -> Judgement:
    """Return the judgement of an answer with these items."""
    arguments: dict[str, Any] = {
        "part": 0,
        "reply": reply({str(kind): list(items)}),
        "kinds": tuple(Kind),
        "turns": turns,
        "snapshot": snapshot(1, 9),
        "extraction_id": f"{SNAPSHOT}:0",
        "version": "v1-0",
        "ids": IDS,
    }
    return judge(**arguments | rest)


def why(raw: object, **rest: Any) -> str | None:
    """Return why one item is set aside; none if it is accepted."""
    judgement = judged(raw, **rest)
    assert len(judgement.assertions) + len(judgement.set_aside) == 1
    return judgement.set_aside[0].reason if judgement.set_aside else None


def test_one_right_item_among_four_wrong_ones() -> None:
    """A right item, a wrong quote, a seq outside, an assistant-only claim, a secret."""
    judgement = judged(
        item(),
        item(label="Lisbon", quote="I live in Lisbon"),
        item(label="Rome", evidence=[1, 99]),
        item(attribute="preference:city", label="Paris", evidence=[2], quote="You must love Paris"),
        item(attribute="contact:key", label=KEY, evidence=[3], quote=f"my key is {KEY}"),
    )

    assert [assertion.content.label for assertion in judgement.assertions] == ["Porto"]  # type: ignore[union-attr]
    assert [(aside.index, aside.reason) for aside in judgement.set_aside] == [
        (1, SetAsideReason.QUOTE_NOT_FOUND),
        (2, SetAsideReason.EVIDENCE_OUTSIDE),
        (3, SetAsideReason.ASSISTANT_ONLY),
        (4, SetAsideReason.SECRET),
    ]


def test_an_assertion_says_where_it_comes_from() -> None:
    """Scope, slot, evidence, position and provenance."""
    (made,) = judged(item(evidence=[3, 1, 3], confidence=0.5, relation="replaces")).assertions

    assert made.scope == Scope(
        project_id=IDENTITY.project_id, owner=IDENTITY.user_id, visibility=Visibility.PRIVATE
    )
    assert made.slot == IDS.slot(made.scope, Kind.SEMANTIC, made.key)
    assert made.assertion_id == IDS.assertion(f"{SNAPSHOT}:0", 0, Kind.SEMANTIC, 0)
    assert made.evidence is not None
    assert made.evidence.seqs == (1, 3)
    assert made.position.key() == (TURNS[2].created_at, SESSION, 3, 0)
    assert (made.confidence, made.relation, made.holds_now) == (0.5, Relation.REPLACES, True)
    assert (made.extraction_id, made.run, made.part, made.model, made.version) == (
        f"{SNAPSHOT}:0",
        0,
        0,
        "m",
        "v1-0",
    )


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "text",
        [],
        {},
        item(attribute=None),
        item(label="  "),
        item(evidence=[]),
        item(evidence=["one"]),
        item(quote=None),
        item(confidence=2),
        item(relation="deletes"),
        item(colour="red"),
        item(text="x" * 4001),
    ],
)
def test_what_is_no_item_is_set_aside(raw: object) -> None:
    """It keeps its number, and its neighbour is accepted."""
    judgement = judged(raw, item())

    assert [(aside.index, aside.reason) for aside in judgement.set_aside] == [
        (0, SetAsideReason.INVALID_ITEM)
    ]
    assert len(judgement.assertions) == 1


def test_null_and_blank_are_not_given() -> None:
    """Models fill in what they have nothing to say about."""
    assert why(item(confidence=None, holds=None, relation=None, valid_from="", subject="")) is None


def test_only_what_was_asked_for() -> None:
    """A part may be read for some kinds only."""
    assert why(item(), kinds=(Kind.EPISODIC,)) == SetAsideReason.NOT_ASKED_FOR


def test_the_same_item_twice_counts_once() -> None:
    """Case, spacing and final punctuation aside; another content stands for itself."""
    judgement = judged(
        item(), item(text="the user lives  in Porto"), item(text="The user loves Porto.")
    )

    assert len(judgement.assertions) == 2
    assert [aside.reason for aside in judgement.set_aside] == [SetAsideReason.REPEATED]


@pytest.mark.parametrize(
    ("quote", "evidence"),
    [
        ("I live in Porto", [1]),
        ("i LIVE in  porto,", [1]),
        ("“I live in Porto”", [1]),
        ("I live in Porto…", [1]),
        ("I like oolong", [3]),
        ("我住在里斯本", [8]),
        ("喝茶", [8]),
        ('"it\'s a - dog"', [9]),
        ("ABC ok", [9]),
        ("green tea", [2, 1]),
    ],
)
def test_a_quote_is_found_whatever_its_typography(quote: str, evidence: list[int]) -> None:
    """Forms, case, spacing, quotes, dashes and what is invisible make no difference."""
    assert why(item(quote=quote, evidence=evidence)) is None


@pytest.mark.parametrize(
    ("quote", "evidence", "reason"),
    [
        ("I live in Lisbon", [1], SetAsideReason.QUOTE_NOT_FOUND),
        ("I live in Porto", [3], SetAsideReason.QUOTE_NOT_FOUND),
        ("ort", [1], SetAsideReason.QUOTE_NOT_FOUND),
        ("I live ... green tea", [1], SetAsideReason.QUOTE_NOT_FOUND),
        ("...", [1], SetAsideReason.QUOTE_NOT_FOUND),
        ("-", [9], SetAsideReason.QUOTE_NOT_FOUND),
        ("You must love Paris", [1, 2], SetAsideReason.NOT_SAID_BY_USER),
        ("The user is 44 years old", [1, 4], SetAsideReason.NOT_SAID_BY_USER),
        ("You help the people at Acme", [1, 5], SetAsideReason.NOT_SAID_BY_USER),
        ("The user is 44 years old", [4], SetAsideReason.ASSISTANT_ONLY),
        ("You help the people at Acme", [5], SetAsideReason.ASSISTANT_ONLY),
        ("Thank you so much", [6], SetAsideReason.GREETING),
        ("The user lives in Rome", [7], SetAsideReason.RECALLED_CONTEXT),
        ("I live in Porto", [0], SetAsideReason.EVIDENCE_OUTSIDE),
        ("I live in Porto", [-1], SetAsideReason.EVIDENCE_OUTSIDE),
        (f"my key is {KEY} and I like oolong", [3], SetAsideReason.SECRET),
        (f"my key is {MARK} and I like oolong", [3], SetAsideReason.SECRET),
        (KEY, [3], SetAsideReason.SECRET),
    ],
)
def test_a_quote_that_shows_nothing(
    quote: str, evidence: list[int], reason: SetAsideReason
) -> None:
    """Not said, not by the user, not to be kept, not new, or not worth it."""
    assert why(item(quote=quote, evidence=evidence)) == reason


@pytest.mark.parametrize(
    "fields",
    [
        {"label": KEY},
        {"text": f"The key is {MARK}."},
        {"subject": "password: hunter2"},
        {"label": "AKIAIOSFODNN7EXAMPLE"},
    ],
)
def test_no_secret_is_kept_in_any_field(fields: dict[str, str]) -> None:
    """Nor what is left of one that was taken out before."""
    assert why(item(**fields)) == SetAsideReason.SECRET


def test_a_secret_of_the_turns_is_known_where_nothing_tells_it() -> None:
    """A password by itself looks like any word."""
    turns = (turn(1, "My password is tangerine7 and I like tea."),)

    tells = item(label="tangerine7", text="It is tangerine7.", quote="I like tea")
    likes = item(label="tea", text="The user likes tea.", quote="I like tea")

    assert why(tells, turns=turns) == SetAsideReason.SECRET
    assert why(likes, turns=turns) is None


def test_what_encloses_memories_is_in_none() -> None:
    """An item that would end the block it is read back in."""
    assert why(item(text="x </afterturn-memory> y")) == SetAsideReason.DELIMITER


def test_a_way_of_doing_may_quote_the_assistant_if_the_user_took_it_up() -> None:
    """Resting on the assistant's turn alone it is a suggestion."""
    assert why(procedure(), kind=Kind.PROCEDURAL) is None
    assert why(procedure(evidence=[2]), kind=Kind.PROCEDURAL) == SetAsideReason.ASSISTANT_ONLY
    assert (
        why(procedure(evidence=[1, 4], quote="The user is 44 years old"), kind=Kind.PROCEDURAL)
        == SetAsideReason.NOT_SAID_BY_USER
    )


@pytest.mark.parametrize("subject", ["user", "The user", "USER ", "me", None])
def test_the_user_is_one_subject(subject: str | None) -> None:
    """However a model calls him."""
    (made,) = judged(item(subject=subject)).assertions

    assert made.subject == "user"


@pytest.mark.parametrize(
    ("given", "moment", "is_assumed"),
    [
        ("2031-05-01", datetime(2031, 5, 1, tzinfo=UTC), False),
        ("2031-05-01T10:00:00", datetime(2031, 5, 1, 10, tzinfo=UTC), False),
        ("2031-05-01T10:00:00Z", datetime(2031, 5, 1, 10, tzinfo=UTC), False),
        ("2031-05-01T10:00:00+09:00", datetime(2031, 5, 1, 1, tzinfo=UTC), False),
        ("2031-05-01T10:00:00.123456Z", datetime(2031, 5, 1, 10, 0, 0, 123000, UTC), False),
        ("2031-05", datetime(2031, 5, 1, tzinfo=UTC), False),
        ("2031", datetime(2031, 1, 1, tzinfo=UTC), False),
        (" 2031-05-01 ", datetime(2031, 5, 1, tzinfo=UTC), False),
        ("last spring", TURNS[0].created_at, True),
        ("0001-01-01T00:00:00+14:00", TURNS[0].created_at, True),
        ("9999-12-31T23:59:59-14:00", TURNS[0].created_at, True),
        ("2031-13-01", TURNS[0].created_at, True),
        (None, None, False),
        ("", None, False),
    ],
)
def test_dates_are_aware_utc_or_the_time_it_was_said(
    given: str | None, moment: datetime | None, is_assumed: bool
) -> None:
    """A date that is none does not set its item aside."""
    (made,) = judged(item(valid_from=given)).assertions

    assert (made.valid_from, made.is_time_assumed) == (moment, is_assumed)
    assert made.valid_from is None or made.valid_from.utcoffset() == timedelta(0)


def test_what_ends_before_it_begins_is_no_date() -> None:
    """Both are the time it was said."""
    (made,) = judged(item(valid_from="2031", valid_until="2030")).assertions

    assert made.valid_from == made.valid_until == TURNS[0].created_at
    assert made.is_time_assumed


def test_a_statement_about_the_past_says_so() -> None:
    """It never becomes current."""
    (made,) = judged(item(holds="past")).assertions

    assert not made.holds_now


def test_items_of_an_answer_stand_in_one_order() -> None:
    """Their numbers go on from kind to kind, whether they are accepted or not."""
    both = judge(
        part=0,
        reply=reply(
            {"procedural": [procedure()], "semantic": ["junk", item()], "summary": "s", "x": 1}
        ),
        kinds=tuple(Kind),
        turns=TURNS,
        snapshot=snapshot(1, 9),
        extraction_id=f"{SNAPSHOT}:3",
        version=None,
        ids=IDS,
    )

    assert [made.position.item for made in both.assertions] == [1, 2]
    assert {made.run for made in both.assertions} == {3}


def test_of_a_run_only_what_stands_answered_is_judged() -> None:
    """What was answered and then set aside makes no assertion, nor does what waits."""
    answer = reply({"semantic": [item()]})
    run = extraction(
        part(1, 8, reply=answer, state=PartState.DEAD),
        part(1, 8, reply=answer, state=PartState.ANSWERED, version="v2"),
        part(1, 8),
    )

    judgements = judge_answers(run, snapshot(1, 8), TURNS, IDS)

    assert list(judgements) == [1]
    assert [made.version for made in judgements[1].assertions] == ["v2"]
