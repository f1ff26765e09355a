"""Each law of a campaign sees its violation, and nothing where all is well."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pipeline.auditing import AuditReport, Violation
from schemas.extraction import Extraction, PartState, Reply, SetAside
from schemas.failure import Attempt, Coordinates, Failure, FailureClass, Letter
from schemas.memory import Kind
from schemas.message import TICKET_HEADER
from schemas.topics import DEAD, TURN_RECORDED, Stage
from tests.builders import SAID_AT, extraction, part, turn
from tests.faults.campaign import Campaign, Mood, Talk
from tests.faults.laws import LAWS, Remains, broken, said_in
from tests.faults.test_privacy import SECRET
from tests.integration.kafka import Record as Message

WELL, REFUSED = "snp_well:0", "snp_refused:0"
TOLD = f'{{"extraction": "{REFUSED}", "part": 0, "event": "attempt_failed", "level": "warning"}}'


def talk(number: int, mood: Mood) -> Talk:
    return Talk(
        number=number,
        begins=timedelta(0),
        turns=(f"I live in Vladivostok at plumtree {number}.0",),
        mood=mood,
        fails=0,
        is_closed=True,
        is_contradicted=False,
        has_secret=False,
    )


TALKS = (talk(0, Mood.WELL), talk(1, Mood.REFUSED))
CAMPAIGN = Campaign(seed=1, talks=TALKS, first=(), events=())


def reply(calls: int = 1) -> Reply:
    return Reply(
        answer={},
        model="m",
        finish_reason=None,
        request_id=None,
        calls=calls,
        prompt_tokens=None,
        completion_tokens=None,
        answered_at=SAID_AT,
    )


def attempts(failure_class: FailureClass, count: int = 1) -> tuple[Attempt, ...]:
    failure = Failure(failure_class=failure_class, reason="r", exception="e")
    return (Attempt(failure=failure, failed_at=SAID_AT),) * count


def letter(letter_id: str, failure_class: FailureClass, offset: int, **fields: Any) -> Letter:
    at = Coordinates(
        topic=TURN_RECORDED.name, partition=0, offset=offset, timestamp_ms=0, group="g"
    )
    return Letter.model_validate(
        {
            "letter_id": letter_id,
            "stage": "extraction",
            "failure_class": failure_class,
            "reason": "r",
            "disposition": "content",
            "fingerprint": "f",
            "action": "a",
            "attempts": attempts(failure_class),
            "original": at,
            "value": b"{}",
            "headers": (),
            "created_at": SAID_AT,
        }
        | fields
    )


UNREADABLE = letter("l1", FailureClass.UNDECODABLE, 7)
OF_REFUSAL = letter("l2", FailureClass.REFUSED, 1, extraction_id=REFUSED)


def sent(*letter_ids: str) -> dict[str, list[Message]]:
    return {
        DEAD[Stage.EXTRACTION].name: [
            message(headers=((TICKET_HEADER, one.encode()),)) for one in letter_ids
        ]
    }


def message(value: bytes = b"{}", headers: Any = ()) -> Message:
    return Message(
        topic="t",
        partition=0,
        offset=0,
        timestamp=0,
        timestamp_type=0,
        key=b"key",
        value=value,
        checksum=None,
        serialized_key_size=0,
        serialized_value_size=0,
        headers=headers,
    )


def answered(**fields: Any) -> Extraction:
    good = part(1, 1, state=PartState.ANSWERED, reply=reply())
    return extraction(good.model_copy(update=fields), extraction_id=WELL)


def refused(*failed: Attempt, state: PartState = PartState.DEAD) -> Extraction:
    return extraction(part(1, 1, state=state), extraction_id=REFUSED, attempts=failed)


FINE = Remains(
    audit=AuditReport(turns=2, in_snapshots=2, outcomes=Counter(records=1, dead=1)),
    turns={each.number: [turn(1, said_in(each)[0])] for each in TALKS},
    extractions={0: [answered()], 1: [refused(*attempts(FailureClass.REFUSED))]},
    remembered={0: list(TALKS[0].turns), 1: []},
    letters=[UNREADABLE, OF_REFUSAL],
    messages=sent("l1", "l2"),
    log=TOLD,
    asked=Counter({0: 1, 1: 1}),
    garbage=[(TURN_RECORDED.name, 0, 7)],
    accepted_contradictions=[],
    tripped_guards=[],
    ended=0,
    failed=0,
    surprises=[],
    permits=4,
)


def test_where_all_is_well_no_law_is_broken() -> None:
    assert broken(CAMPAIGN, FINE) == []


TIMEOUT = FailureClass.TIMEOUT
VIOLATIONS: list[tuple[str, Callable[[], Remains]]] = [
    ("processes", lambda: replace(FINE, failed=1)),
    ("processes", lambda: replace(FINE, surprises=["worker one ended with 1"])),
    ("audit", lambda: replace(FINE, audit=replace(FINE.audit, open=1))),
    ("audit", lambda: replace(FINE, audit=replace(FINE.audit, turns=3))),
    ("audit", lambda: replace(FINE, audit=replace(FINE.audit, outcomes=Counter(pending=1)))),
    (
        "audit",
        lambda: replace(
            FINE,
            audit=replace(
                FINE.audit, violations=[Violation(law="I1", where="s", finding="overlap")]
            ),
        ),
    ),
    ("recorded", lambda: replace(FINE, turns=FINE.turns | {0: []})),
    ("recorded", lambda: replace(FINE, turns=FINE.turns | {0: [turn(2, said_in(TALKS[0])[0])]})),
    ("recorded", lambda: replace(FINE, turns=FINE.turns | {0: FINE.turns[0] * 2})),
    ("recorded", lambda: replace(FINE, turns=FINE.turns | {0: [turn(1, "I never said that.")]})),
    ("recorded", lambda: replace(FINE, accepted_contradictions=[0])),
    ("I4", lambda: replace(FINE, asked=Counter({0: 2, 1: 1}))),
    ("I4", lambda: replace(FINE, log="")),
    ("I4", lambda: replace(FINE, ended=1, asked=Counter({0: 6, 1: 1}))),
    ("I4", lambda: replace(FINE, extractions=FINE.extractions | {0: [answered(reply=reply(3))]})),
    ("I5", lambda: replace(FINE, garbage=[*FINE.garbage, (TURN_RECORDED.name, 0, 8)])),
    ("I5", lambda: replace(FINE, garbage=[])),
    ("I5", lambda: replace(FINE, letters=[UNREADABLE, *FINE.letters])),
    ("I5", lambda: replace(FINE, messages=sent("l2"))),
    (
        "I6",
        lambda: replace(FINE, extractions=FINE.extractions | {1: [refused(*attempts(TIMEOUT, 4))]}),
    ),
    (
        "letters",
        lambda: replace(
            FINE,
            letters=[
                UNREADABLE,
                OF_REFUSAL.model_copy(update={"failure_class": FailureClass.FILTERED}),
            ],
        ),
    ),
    (
        "letters",
        lambda: replace(
            FINE, letters=[UNREADABLE, OF_REFUSAL.model_copy(update={"extraction_id": WELL})]
        ),
    ),
    (
        "letters",
        lambda: replace(
            FINE,
            letters=[
                UNREADABLE,
                OF_REFUSAL.model_copy(
                    update={
                        "failure_class": TIMEOUT,
                        "disposition": "exhausted",
                        "attempts": attempts(TIMEOUT, 2),
                    }
                ),
            ],
        ),
    ),
    (
        "letters",
        lambda: replace(
            FINE,
            letters=[
                UNREADABLE,
                OF_REFUSAL.model_copy(update={"failure_class": FailureClass.CRASH_LOOP}),
            ],
        ),
    ),
    ("letters", lambda: replace(FINE, tripped_guards=["extraction:v:live"])),
    ("I9", lambda: replace(FINE, remembered=FINE.remembered | {0: []})),
    ("I9", lambda: replace(FINE, remembered=FINE.remembered | {1: list(TALKS[1].turns)})),
    (
        "I9",
        lambda: replace(
            FINE, extractions=FINE.extractions | {1: [refused(state=PartState.WAITING)]}
        ),
    ),
    (
        "I9",
        lambda: replace(
            FINE,
            extractions=FINE.extractions
            | {
                0: [answered(set_aside=(SetAside(kind=Kind.SEMANTIC, index=0, reason="repeated"),))]
            },
        ),
    ),
    ("I11", lambda: replace(FINE, log=TOLD + "\nQuentin is well")),
    ("I11", lambda: replace(FINE, messages=FINE.messages | {"t": [message(b"plumtree")]})),
    (
        "I11",
        lambda: replace(
            FINE, letters=[UNREADABLE, OF_REFUSAL.model_copy(update={"reason": "zebrafish"})]
        ),
    ),
    (
        "I11",
        lambda: replace(
            FINE,
            extractions=FINE.extractions
            | {0: [answered(reply=reply().model_copy(update={"answer": {"summary": SECRET}}))]},
        ),
    ),
]


@pytest.mark.parametrize(("law", "violated"), VIOLATIONS)
def test_a_law_sees_its_violation(law: str, violated: Callable[[], Remains]) -> None:
    assert law in {finding.partition(":")[0] for finding in broken(CAMPAIGN, violated())}


def test_every_law_is_seen_broken() -> None:
    assert {law for law, _ in VIOLATIONS} == set(LAWS)


def test_ended_processes_and_used_up_ladders_are_causes() -> None:
    cut_off = replace(FINE, ended=1, asked=Counter({0: 5, 1: 1}))
    used_up = OF_REFUSAL.model_copy(
        update={
            "failure_class": TIMEOUT,
            "disposition": "exhausted",
            "attempts": attempts(TIMEOUT, 3),
        }
    )

    assert broken(CAMPAIGN, cut_off) == []
    assert broken(CAMPAIGN, replace(FINE, letters=[UNREADABLE, used_up])) == []


def test_failures_that_share_a_line_or_are_torn_are_read() -> None:
    shared = replace(FINE, log=f'{TOLD}{{"event": "started"}}{TOLD}\n\n{TOLD[:30]}')

    assert broken(CAMPAIGN, shared) == []
