"""E7: which items of a stored answer become assertions, and why the others do not.

Pure and total: the same answer and turns give the same judgement, whoever makes it and whenever,
and no answer raises. An item is judged alone, so one that is unusable never discards another.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, cast

from pydantic import ValidationError

from pipeline.dates import moment_of
from pipeline.extracting.planning import turns_of
from pipeline.extracting.quoting import Found, SaidTurn, is_greeting, normalized_quote
from pipeline.extracting.recalled import without_recalled
from pipeline.extracting.redaction import MARK, NO_SECRETS, KnownSecrets, redact
from pipeline.folding.slots import content_key, slot_key
from pipeline.forgetting.barring import Bars, is_barred
from pipeline.ids import OpaqueIds
from schemas.assertion import Assertion, Evidence, SourcePosition
from schemas.extraction import BLANK, FORGOTTEN, Extraction, PartState, Reply, SetAside
from schemas.identity import Scope, Visibility
from schemas.memory import CONTENT_TYPES, ITEM_TYPES, Content, Item, Kind
from schemas.snapshot import Snapshot
from schemas.turn import Role, Turn


class SetAsideReason(StrEnum):
    """Why an item became no assertion."""

    INVALID_ITEM = "invalid_item"
    NOT_ASKED_FOR = "not_asked_for"
    """Of a kind that this part was not to be read for."""
    REPEATED = "repeated"
    """The same as an earlier item of this answer: said once, it counts once."""
    EVIDENCE_OUTSIDE = "evidence_outside"
    """Rests on a turn that was not to be extracted from, or that there is not."""
    ASSISTANT_ONLY = "assistant_only"
    """Rests on no turn of the user's."""
    NOT_SAID_BY_USER = "not_said_by_user"
    """Quotes somebody else for what only the user can say."""
    QUOTE_NOT_FOUND = "quote_not_found"
    GREETING = "greeting"
    SECRET = "secret"  # noqa: S105 (a reason)
    RECALLED_CONTEXT = "recalled_context"
    """Quotes what memory itself had told the agent."""
    DELIMITER = "delimiter"
    """Holds what encloses memories when they are read back."""
    FORGOTTEN = FORGOTTEN
    """Its slot may not hold it any more, or it was blanked for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of the items of one part's answer."""

    assertions: tuple[Assertion, ...]
    set_aside: tuple[SetAside, ...]


_QUOTABLE: Final[dict[Kind, frozenset[Role]]] = {
    Kind.SEMANTIC: frozenset({Role.USER}),
    Kind.EPISODIC: frozenset({Role.USER}),
    # Steps and definitions are often the assistant's words; that the user took them up is evidence.
    Kind.PROCEDURAL: frozenset({Role.USER, Role.ASSISTANT}),
    Kind.TAXONOMIC: frozenset({Role.USER, Role.ASSISTANT}),
}
"""Whose turns an item of a kind may quote. Each rests on a turn of the user's besides."""

NO_BARS: Final[Bars] = {}
_USER: Final = frozenset({"user", "the user", "me", "i", "myself", "speaker"})


def judge_answers(
    extraction: Extraction,
    snapshot: Snapshot,
    turns: Sequence[Turn],
    ids: OpaqueIds,
    bars: Bars = NO_BARS,
) -> dict[int, Judgement]:
    """Return the judgement of each answered part of a run, by the part's number. Pure.

    Args:
        extraction: The run.
        snapshot: What it is a run of.
        turns: At least those of its parts that are still there.
        ids: Makes the ids of slots and assertions.
        bars: What their slots may not hold any more.
    """
    return {
        index: judge(
            part=index,
            reply=part.reply,
            kinds=part.kinds,
            turns=turns_of(part, turns),
            snapshot=snapshot,
            extraction_id=extraction.extraction_id,
            version=part.version,
            ids=ids,
            bars=bars,
        )
        for index, part in enumerate(extraction.parts)
        if part.reply is not None and part.state is PartState.ANSWERED
    }


def judge(
    *,
    part: int,
    reply: Reply,
    kinds: Sequence[Kind],
    turns: Sequence[Turn],
    snapshot: Snapshot,
    extraction_id: str,
    version: str | None,
    ids: OpaqueIds,
    bars: Bars = NO_BARS,
) -> Judgement:
    """Return the judgement of one part's stored answer. Pure.

    Args:
        part: The part's number in its extraction.
        reply: Its stored answer; any JSON.
        kinds: What the part was to be read for.
        turns: The turns of the part, and no others.
        snapshot: The snapshot the part is of.
        extraction_id: The run it belongs to.
        version: The extractor's version.
        ids: Makes the ids of slots and assertions.
        bars: What their slots may not hold any more.
    """
    run = int(extraction_id.rpartition(":")[2])
    bench = _Bench(
        part=part,
        reply=reply,
        kinds=frozenset(kinds),
        said={turn.seq: SaidTurn(turn) for turn in turns},
        secrets=NO_SECRETS.and_those_in(turn.content for turn in turns),
        snapshot=snapshot,
        scope=Scope(
            project_id=snapshot.identity.project_id,
            owner=snapshot.identity.user_id,
            visibility=Visibility.PRIVATE,
            org_id=snapshot.identity.org_id,
        ),
        extraction_id=extraction_id,
        run=run,
        version=version,
        ids=ids,
    )
    assertions: list[Assertion] = []
    set_aside: list[SetAside] = []
    seen: set[tuple[object, ...]] = set()
    for place, (kind, index, raw) in enumerate(_items(reply.answer)):
        judged = bench.judge(kind, index, place, raw)
        if isinstance(judged, Assertion) and is_barred(bars.get(judged.slot), judged):
            judged = SetAsideReason.FORGOTTEN
        if isinstance(judged, Assertion):
            says = (judged.slot, judged.relation, judged.holds_now, content_key(judged.content))
            if says not in seen:
                seen.add(says)
                assertions.append(judged)
                continue
            judged = SetAsideReason.REPEATED
        set_aside.append(SetAside(kind=kind, index=index, reason=judged))
    return Judgement(assertions=tuple(assertions), set_aside=tuple(set_aside))


def _items(answer: Mapping[str, Any]) -> Iterator[tuple[Kind, int, object]]:
    """Yield every item with its kind and its number among those of its kind."""
    for kind in Kind:
        items = answer.get(kind)
        if isinstance(items, list):
            for index, item in enumerate(cast("list[object]", items)):
                yield kind, index, item


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """What the items of one answer have in common."""

    part: int
    reply: Reply
    kinds: frozenset[Kind]
    said: Mapping[int, SaidTurn]
    secrets: KnownSecrets
    snapshot: Snapshot
    scope: Scope
    extraction_id: str
    run: int
    version: str | None
    ids: OpaqueIds

    def judge(self, kind: Kind, index: int, place: int, raw: object) -> Assertion | SetAsideReason:
        """Return the assertion that an item makes, or why it makes none."""
        if raw == BLANK:
            return SetAsideReason.FORGOTTEN
        if kind not in self.kinds:
            return SetAsideReason.NOT_ASKED_FOR
        item = _parsed(kind, raw)
        if item is None:
            return SetAsideReason.INVALID_ITEM
        if not self.said.keys() >= set(item.evidence):
            return SetAsideReason.EVIDENCE_OUTSIDE
        objection = self._objection_to_words(item) or self._objection_to_quote(kind, item)
        return objection or self._assertion(kind, index, place, item)

    def _objection_to_words(self, item: Item) -> SetAsideReason | None:
        words = list(_texts(item))
        if any(MARK in text or redact(text, known=self.secrets)[1] for text in words):
            return SetAsideReason.SECRET
        if any(without_recalled(text) != text for text in words):
            return SetAsideReason.DELIMITER
        return None

    def _objection_to_quote(self, kind: Kind, item: Item) -> SetAsideReason | None:
        cited = [self.said[seq] for seq in sorted(set(item.evidence))]
        if all(turn.role is not Role.USER for turn in cited):
            return SetAsideReason.ASSISTANT_ONLY
        quote = normalized_quote(item.quote)
        places = [(turn.find(quote), turn.role in _QUOTABLE[kind]) for turn in cited]
        if (Found.SAID, True) in places:
            return SetAsideReason.GREETING if is_greeting(quote) else None
        found = {place for place, _ in places}
        return next(reason for place, reason in _UNQUOTABLE if place in found)

    def _assertion(self, kind: Kind, index: int, place: int, item: Item) -> Assertion:
        content = _content(kind, item)
        subject = "user" if item.subject.strip().casefold() in _USER else item.subject.strip()
        key = slot_key(kind, subject, content, self.snapshot.snapshot_id)
        seqs = tuple(sorted(set(item.evidence)))
        said_at = self.said[seqs[-1]].effective_at
        valid_from, valid_until, is_time_assumed = _validity(item, said_at)
        return Assertion(
            assertion_id=self.ids.assertion(self.extraction_id, self.part, kind, index),
            slot=self.ids.slot(self.scope, kind, key),
            scope=self.scope,
            kind=kind,
            key=key,
            subject=subject,
            content=content,
            relation=item.relation,
            holds_now=item.holds == "now",
            valid_from=valid_from,
            valid_until=valid_until,
            is_time_assumed=is_time_assumed,
            confidence=item.confidence,
            evidence=Evidence(session=self.snapshot.session, seqs=seqs, quote=item.quote),
            position=SourcePosition(
                effective_at=said_at, session=self.snapshot.session, seq=seqs[-1], item=place
            ),
            extraction_id=self.extraction_id,
            snapshot_id=self.snapshot.snapshot_id,
            run=self.run,
            part=self.part,
            session=self.snapshot.session,
            session_id=self.snapshot.identity.session_id,
            agent_id=self.snapshot.identity.agent_id,
            model=self.reply.model,
            version=self.version,
        )


_UNQUOTABLE: Final = (
    (Found.IN_SECRET, SetAsideReason.SECRET),
    (Found.SAID, SetAsideReason.NOT_SAID_BY_USER),
    (Found.RECALLED, SetAsideReason.RECALLED_CONTEXT),
    (Found.NOWHERE, SetAsideReason.QUOTE_NOT_FOUND),
)
"""Why a quote that nobody who may be quoted has said is no evidence, the weightiest first."""


def _parsed(kind: Kind, raw: object) -> Item | None:
    """Return an item, or none if it is none. What is null or blank counts as not given."""
    if not isinstance(raw, dict):
        return None
    given = {key: value for key, value in cast("dict[str, Any]", raw).items() if _is_given(value)}
    try:
        item = ITEM_TYPES[kind].model_validate(given)
    except ValidationError:
        return None
    return item if all(text.strip() for text in _texts(item)) else None


def _is_given(value: object) -> bool:
    return bool(value.strip()) if isinstance(value, str) else value is not None


def _content(kind: Kind, item: Item) -> Content:
    fields = CONTENT_TYPES[kind].model_fields
    return CONTENT_TYPES[kind].model_validate({name: getattr(item, name) for name in fields})


def _texts(item: Item) -> Iterator[str]:
    """Yield every text of an item that a person would read, its quote aside."""
    for name, value in item:
        if isinstance(value, str) and name not in {"quote", "holds"}:
            yield value
        elif isinstance(value, tuple):
            yield from (
                inner for inner in cast("Iterable[object]", value) if isinstance(inner, str)
            )


def _validity(item: Item, said_at: datetime) -> tuple[datetime | None, datetime | None, bool]:
    """Return from when until when an item holds, and whether a date had to be assumed.

    What was given and is no date, or ends before it begins, is the time it was said at.
    """
    given = (item.valid_from, item.valid_until)
    read = [None if text is None else moment_of(text) for text in given]
    is_reversed = read[0] is not None and read[1] is not None and read[1] < read[0]
    is_unread = [
        text is not None and (moment is None or is_reversed)
        for text, moment in zip(given, read, strict=True)
    ]
    begins, ends = (
        said_at if unread else moment for unread, moment in zip(is_unread, read, strict=True)
    )
    return begins, ends, any(is_unread)
