"""What must hold when all has settled after a campaign: pure functions of what is there then."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeline.auditing import PENDING, AuditReport
from pipeline.failing.crash_loops import CRASHES
from pipeline.failing.retry import LADDERS, NO_RETRY
from pipeline.settings import LLMSettings
from schemas.extraction import Extraction, PartState
from schemas.failure import FailureClass, Letter
from schemas.message import TICKET_HEADER
from schemas.turn import Turn
from tests.faults.campaign import LASTING, Campaign, Mood, Talk
from tests.faults.test_privacy import SECRET, planted_in
from tests.integration.kafka import Record as Message

REQUESTS: Final = 1 + LLMSettings().reasks
"""Of one answer, at most."""
OWN_CLASS: Final = {
    Mood.REFUSED: FailureClass.REFUSED,
    Mood.FILTERED: FailureClass.FILTERED,
    Mood.INVALID: FailureClass.INVALID_OUTPUT,
    Mood.EMPTY: FailureClass.INVALID_OUTPUT,
    Mood.BAD_REQUEST: FailureClass.BAD_REQUEST,
}
"""What the letters of a session that is never answered well are about."""
ATTEMPT_FAILED: Final = re.compile(r'\{[^{}]*"event": "attempt_failed"[^{}]*\}')
"""A line of the log."""
UNREADABLE: Final = (FailureClass.UNDECODABLE, FailureClass.UNKNOWN_VERSION)

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is there when everything has settled."""

    audit: AuditReport
    turns: dict[int, list[Turn]]
    """By talk, in order."""
    extractions: dict[int, list[Extraction]]
    """By talk, in order of their turns."""
    remembered: dict[int, list[str]]
    """By talk: the contents of its user's records, in their order."""
    letters: list[Letter]
    messages: dict[str, list[Message]]
    """By topic, in order."""
    log: str
    asked: Counter[int]
    """Requests that reached the model, by talk."""
    garbage: list[Place]
    """Where what nobody can read was put."""
    accepted_contradictions: list[int]
    """Talks in which an idempotency key was taken for other words, too."""
    tripped_guards: list[str]
    ended: int
    """Worker processes that were ended before all faults were lifted."""
    failed: int
    """How many workers ended by an error: they do where MongoDB is gone as they start."""
    surprises: list[str]
    """Which of them ended, or did not, as none should."""
    permits: int
    """Requests a worker makes at once, at most."""


Law = Callable[[Campaign, Remains], Iterator[str]]


def broken(campaign: Campaign, remains: Remains) -> list[str]:
    """Return every finding, each with its law in front. Pure."""
    return [
        f"{name}: {finding}" for name, law in LAWS.items() for finding in law(campaign, remains)
    ]


def processes_end_in_order(_campaign: Campaign, remains: Remains) -> Iterator[str]:
    """A worker ends when it is told to and in order, when it is killed, or without a database."""
    yield from remains.surprises
    explained = remains.log.count("\npymongo.errors.")
    if remains.failed > explained:
        yield f"{remains.failed} workers ended by an error, MongoDB explains {explained}"


def audited(campaign: Campaign, remains: Remains) -> Iterator[str]:
    """I1 to I3: tiles, outcomes, folds, as `afterturn audit` sees them."""
    report = remains.audit
    yield from (f"{each.law} {each.where}: {each.finding}" for each in report.violations)
    if (report.turns, report.in_snapshots, report.open) != (campaign.turns, campaign.turns, 0):
        yield f"{report.turns} turns, {report.in_snapshots} in snapshots, {report.open} open"
    if report.outcomes[PENDING]:
        yield f"{report.outcomes[PENDING]} snapshots are pending"


def recorded_once(campaign: Campaign, remains: Remains) -> Iterator[str]:
    """Each turn once, in its order, without a gap; no key stands for two turns."""
    for talk in campaign.talks:
        stored = [(turn.seq, turn.content) for turn in remains.turns[talk.number]]
        if stored != list(enumerate(said_in(talk), start=1)):
            yield f"session {talk.number} holds {[seq for seq, _ in stored]}, or other words"
    for number in remains.accepted_contradictions:
        yield f"a key of session {number} was taken for other words"


def calls_are_paid_once(_campaign: Campaign, remains: Remains) -> Iterator[str]:
    """I4: a request is behind a stored answer, behind a failure that was told, or was cut off.

    What a failure cost is one answer's requests at most. Cut off is what an ended process had under
    way, as many as it has permits; and what the database did not take in the time of a lease.
    """
    failures = failed_calls(remains.log)
    cut_off = 0
    for number, extractions in remains.extractions.items():
        replies = [part.reply for each in extractions for part in each.parts if part.reply]
        if any(reply.calls > REQUESTS for reply in replies):
            yield f"an answer of session {number} took more than {REQUESTS} requests"
        stored = sum(reply.calls for reply in replies)
        failed = REQUESTS * sum(failures[each.extraction_id] for each in extractions)
        cut_off += max(0, remains.asked[number] - stored - failed)
    most = remains.permits * remains.ended + remains.log.count('"answer_not_stored_yet"')
    if cut_off > most:
        yield f"{cut_off} requests came to nothing; {remains.ended} ended processes explain {most}"


def failed_calls(log: str) -> Counter[str]:
    """Return how many failures of a model's answer were told, by extraction. Pure.

    Processes that write at once may share a line, and a killed one leaves a piece of one.
    """
    return Counter(
        failure["extraction"]
        for failure in map(json.loads, ATTEMPT_FAILED.findall(log))
        if failure["part"] is not None
    )


def unreadable_is_a_letter(_campaign: Campaign, remains: Remains) -> Iterator[str]:
    """I5: each message that nobody can read has one letter, and each letter is on its topic."""
    kept = Counter(
        (each.original.topic, each.original.partition, each.original.offset)
        for each in remains.letters
        if each.original is not None and each.failure_class in UNREADABLE
    )
    garbage = Counter(remains.garbage)
    yield from (f"{place} is no letter" for place in (garbage - kept).elements())
    yield from (f"{place} is a letter" for place in (kept - garbage).elements())
    sent = {
        value
        for topic, messages in remains.messages.items()
        if ".dead." in topic
        for message in messages
        for name, value in message.headers
        if name == TICKET_HEADER
    }
    yield from (
        f"letter {each.letter_id} is not on its topic"
        for each in remains.letters
        if each.letter_id.encode() not in sent
    )


def ladders_end(_campaign: Campaign, remains: Remains) -> Iterator[str]:
    """I6: of no class more failures than its ladder has rungs, and the one that gives up."""
    for number, extraction in _each(remains):
        classes = Counter(each.failure.failure_class for each in extraction.attempts)
        dead = sum(part.state is PartState.DEAD for part in extraction.parts)
        for failure_class, count in classes.items():
            ladder = LADDERS.get(failure_class, NO_RETRY)
            most = len(ladder.rungs) + max(1, dead)
            if count > most and not ladder.repeats_last:
                yield f"session {number} failed {count} times by {failure_class}, not {most}"


def letters_have_a_cause(campaign: Campaign, remains: Remains) -> Iterator[str]:
    """What is set aside is what the model answers badly for good, or has used up its ladder.

    Or five processes were killed over it, as a crash loop looks from outside.
    """
    moods = {talk.number: talk.mood for talk in campaign.talks}
    numbers = {each.extraction_id: number for number, each in _each(remains)}
    for letter in remains.letters:
        if letter.failure_class in UNREADABLE:
            continue
        if letter.failure_class is FailureClass.CRASH_LOOP:
            has_cause = remains.ended >= CRASHES
        elif letter.disposition == "exhausted" or letter.failure_class is FailureClass.TOO_SLOW:
            has_cause = _is_used_up(letter)
        else:
            number = numbers[letter.extraction_id or ""]
            has_cause = letter.failure_class is OWN_CLASS.get(moods[number])
        if not has_cause:
            yield f"{letter.failure_class} {letter.reason} of {letter.extraction_id}"
    yield from (f"guard {each} holds letters back" for each in remains.tripped_guards)


def _is_used_up(letter: Letter) -> bool:
    failure_class = letter.attempts[-1].failure.failure_class
    if failure_class is FailureClass.TOO_SLOW:
        failure_class = FailureClass.TIMEOUT
    same = sum(
        each.failure.failure_class in (failure_class, FailureClass.TOO_SLOW)
        for each in letter.attempts
    )
    return same > len(LADDERS[failure_class].rungs)


def neighbours_are_fine(campaign: Campaign, remains: Remains) -> Iterator[str]:
    """I9: what is well is remembered, each in its order, whatever became of what is beside it."""
    for talk in campaign.talks:
        extractions = remains.extractions[talk.number]
        dead = {
            seq
            for extraction in extractions
            for part in extraction.parts
            if part.state is PartState.DEAD
            for seq in range(part.first_seq, part.last_seq + 1)
        }
        due = [
            text
            for seq, text in enumerate(talk.turns, start=1)
            if seq not in dead and talk.mood is not Mood.NOTHING
        ]
        held = remains.remembered[talk.number]
        if held != due:
            yield f"session {talk.number} ({talk.mood}) is remembered by {held}, not {due}"
        if talk.mood in LASTING and len(dead) < len(talk.turns):
            yield f"session {talk.number} ({talk.mood}) has no letter for some turns"
        set_aside = {
            item.reason
            for each in extractions
            for part in each.parts
            if part.state is PartState.ANSWERED
            for item in part.set_aside
        }
        if set_aside - {"quote_not_found"} or (talk.mood is Mood.WRONG_QUOTE) > bool(
            set_aside or dead
        ):
            yield f"session {talk.number} ({talk.mood}) set aside for {set_aside}"


def nothing_leaks(_campaign: Campaign, remains: Remains) -> Iterator[str]:
    """I11: no planted word in logs, Kafka, letters, failures, ids; no secret in an answer."""
    on_kafka = b"\n".join(
        piece
        for messages in remains.messages.values()
        for message in messages
        for piece in (message.key or b"", message.value or b"", *_bytes(message.headers))
    ).decode("utf-8", "replace")
    ledger = [each.model_dump(mode="json") for _, each in _each(remains)]
    places: dict[str, str] = {
        "logs": remains.log,
        "Kafka": on_kafka,
        "letters": "\n".join(map(repr, remains.letters)),
        "failures": json.dumps([each["attempts"] for each in ledger]),
        "ids": json.dumps([each["extraction_id"] for each in ledger]),
    }
    for place, text in places.items():
        yield from (f"{word} is in the {place}" for word in planted_in(text))
    if SECRET in json.dumps(ledger):
        yield "the secret is in an answer"


def said_in(talk: Talk) -> list[str]:
    """Return the words of a talk's turns as they are recorded."""
    ending = f"; my key is {SECRET}" if talk.has_secret else "; that is all"
    return [f"{text}{ending}" for text in talk.turns]


def _each(remains: Remains) -> Iterator[tuple[int, Extraction]]:
    for number, extractions in remains.extractions.items():
        for extraction in extractions:
            yield number, extraction


def _bytes(headers: Sequence[Any]) -> Iterable[bytes]:
    for name, value in headers:
        yield name.encode()
        yield value or b""


LAWS: Final[dict[str, Law]] = {
    "processes": processes_end_in_order,
    "audit": audited,
    "recorded": recorded_once,
    "I4": calls_are_paid_once,
    "I5": unreadable_is_a_letter,
    "I6": ladders_end,
    "letters": letters_have_a_cause,
    "I9": neighbours_are_fine,
    "I11": nothing_leaks,
}
