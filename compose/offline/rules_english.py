"""What an English sentence states of the user, or of somebody the user names.

A clause counts only when it begins with its subject ("I", "my sister Ana", "Ana"). Its predicate
is brought into the third person first, so one table of rules serves every subject.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from compose.offline import rules_english_words as words
from compose.offline.rules_dates import day_of
from compose.offline.rules_english_table import (
    ADVERBS,
    KIN,
    KIN_ADJECTIVES,
    NAME,
    POSSESSIVES,
    PREDICATES,
    Draft,
    kin_attribute,
)
from compose.offline.rules_english_values import activity_of, is_worth, topic_of, value_in
from compose.offline.rules_items import USER, Fact, Stated
from compose.offline.rules_text import BARRED, Clause, Sentence, quoted_spans, split
from schemas.memory import Relation

# --- clauses -------------------------------------------------------------------------------------

_BASE_VERBS = (
    r"(?:work|live|have|like|love|enjoy|prefer|hate|study|speak|play|own|drive|want|plan|am|do not"
    r"|don't|dislike|moved|works|lives|has|likes|loves|enjoys|prefers|hates|studies|speaks|plays|owns"
    r"|drives|wants|plans|doesn't|teach|teaches|run a|runs a)"
)
_BOUNDARY = re.compile(
    rf"""(?ix)
    \s*(?:;|—|–|\s-\s|…|:\s)\s*
    | ,?\s+(?:and|but|so|because|since|although|though|while|yet|plus|or)\s+
      (?=(?:i|i'm|i’m|i've|i’ve|i'd|i’d|my|we|we're|our|actually|also|now|you|he|she|it|they|can|could
        |do|what|how)\b)
    | ,\s*(?=(?:i|i'm|i’m|i've|i’ve|i'd|my|we|we're)\b)
    | ,?\s+(?:and|but|so)\s+(?=(?:(?:also|now|still)\s+)?{_BASE_VERBS}\b)
    | ,\s+(?=(?:do|can|could|would|will|what|how|which|have|are|is|should|any)\s+(?:you|about|i
      |it|there)\b)
    """
)
_LEADING = re.compile(
    r"""(?ix)
    (?: hi(?:ya)? | hello | hey | dear | well | oh | ah | wow | haha+ | yes | yeah | yep | no | nope
      | ok(?:ay)? | alright | sure | right | of\ course | anyway | honestly | also | and | but | so
      | plus | then | by\ the\ way | btw | in\ fact | to\ be\ honest | tbh | you\ know(?:\ what)?
      | as\ you\ know | fyi | for\ the\ record | in\ case\ it\ helps | actually | sorry | wait
      | correction | my\ bad | my\ mistake | i\ misspoke(?:\ earlier)? | i\ was\ wrong
      | i\ made\ a\ mistake | scratch\ that | in\ general | generally | personally
      | currently | now | nowadays | these\ days | at\ the\ moment | right\ now | lately | recently
      | still | besides(?:\ that)? | in\ addition | moreover | unfortunately | luckily | fortunately
      | thanks(?:\ a\ lot)? | thank\ you(?:\ (?:so|very)\ much)? | good\ (?:morning|evening
        |afternoon)
      | (?:please\ )?(?:remember|note|keep\ in\ mind|don't\ forget|save
        |let\ it\ be\ known)(?:\ that)?
      | just\ so\ you\ know | i\ want\ you\ to\ (?:know|remember)\ that
      | (?:as\ )?i\ (?:said|mentioned)(?:\ (?:before|earlier))? | i\ mean
      | (?:yes,\ )?the\ fact\ is | my\ (?:dear\ )?friend | friend | everyone | there | assistant
      | ai\ companion | one\ more\ thing | about\ me | a\ bit\ about\ me | first(?:\ of\ all)?
      | usually | normally | sometimes | often | as\ of\ (?:this|last)\ \w+ | from\ now\ on
      | since\ (?:last|this)\ \w+ | last\ (?:week|month|year|summer|spring|winter|autumn|fall)
      | (?:\w+\ )?(?:days?|weeks?|months?|years?)\ ago | yesterday
      | when\ (?:i|we)\ (?:was|were)\ [^,.;]{1,40}?(?=,?\ (?:i|we)\b)
      | as\ a\ (?:kid|child|teenager|student|boy|girl)
      | in\ my\ (?:free|spare|leisure)\ time | (?:on|at)\ (?:the\ )?weekends? | outside\ of\ work
    ) (?: \s*[,!.:—–-]+\s* | \s+ )
    """
)
_FREE_TIME = re.compile(
    r"(?i)\bin my (?:free|spare|leisure) time\b|\b(?:on|at) (?:the )?weekends\b"
)
_UNREAL = re.compile(
    r"""(?ix)
    \b(?:if|unless)\s+(?:i|we|my|he|she|they|it|only|one|you|someone|there)\b | ^\s*(?:if|suppose
    |supposing|imagine|assuming|what\ if|let's\ say|say\ i|pretend)\b | \bi\ wish\b | \bas\ if\b
    | \bwould\ have\b | \bwould\ rather\ be\b | \b(?:just\ )?(?:kidding|joking)\b
      | \bhypothetically\b
    | \bin\ (?:my|the|a)\ (?:dream|novel|story|game|movie|book)\b
    """
)
_REPORTING = re.compile(
    r"""(?ix)
    \b(?:says?|said|saying|tells?|told|asks?|asked|wrote|writes|claims?|claimed|thinks?|thought
      |believes?|heard|according\ to|quote[ds]?|reads?|sings?|sang|goes)\b [\s,:]* (?:me|us|that
        |to\ me|:)*
      [\s,:]*$
    """
)
_SPEAKER = re.compile(r"^[A-Z]\w*(?: [A-Z]\w*){0,2}$")
_HEDGE = re.compile(
    r"(?i)\b(?:maybe|perhaps|might|not sure|i guess|probably|possibly|i doubt|almost|could be)\b"
)
_CORRECTING = re.compile(
    r"""(?ix)
    \b(?:actually|i\ misspoke|i\ meant|correction|my\ mistake|my\ bad|i\ was\ wrong|scratch\ that
      |i\ made\ a\ mistake|that(?:'s|\ is|\ was)\ (?:wrong|not\ (?:right|true|correct))
      |sorry,\ i | wait,\ i | not\ true | i\ mistyped | typo | let\ me\ correct | to\ correct)\b
    | ^\s*no\s*,
    """
)
_CONTRAST = re.compile(
    r"(?i), ?(?:and )?not (?:in |at |from |as |an? |the )?"
    r"(?P<old>(?!what|that|sure|only|very|really|because|just|so)[\w'’-]+(?: [\w'’-]+){0,2})[.!]*$"
)
_COEXISTING = re.compile(r"(?i)\b(?:also|too|as well|another|besides|in addition|plus)\b")
_TODAY = re.compile(
    r"(?i)\b(?:today|tonight|this (?:morning|afternoon|evening)"
    r"|now i(?:'m| am) going|i(?:'m| am) now going)\b"
)
_TURNED = re.compile(
    r"(?i)\b(?:now|nowadays|these days|from now on|instead|as of|recently (?:moved|started)"
    r"|switched|changed)\b"
)
_OVER = re.compile(
    r"(?i)\bno longer\b|\b(?:not|n't|n’t|never)\b.*\b(?:any ?more|any longer)\b|\bnot any ?more\b"
)
_LONG_AGO = re.compile(
    r"""(?ix)
    \bused\ to\b | \bwhen\ i\ was\ (?:a\ |an\ |very\ |in\ |still\ |at\ |little|young|small|\d
      |\w+teen)
    | \bas\ a\ (?:kid|child|teenager|student|boy|girl)\b | \bin\ my\ (?:childhood|youth|teens
      |twenties)\b
    | \bback\ (?:in|then)\b | \bpreviously\b | \bformerly\b | \bin\ the\ past\b | \byears\ ago\b
    | \buntil\ (?:last|\d|two|three|recently)
    """
)

# --- subjects ------------------------------------------------------------------------------------

_I = re.compile(
    r"(?i)^(?:i|we|my (?:wife|husband|partner|girlfriend|boyfriend|family) and i)(?=['’\s])"
)
_MY_PERSON = re.compile(
    rf"^[Mm]y (?P<adjectives>{KIN_ADJECTIVES})(?P<kin>{KIN})"
    rf"(?:,? (?P<name>(?!I\b){NAME}))?(?P<tail>,? (?=[a-z])|['’]s (?=[a-z])|$)"
)
_SOMEBODY = re.compile(
    rf"^(?P<name>{NAME}) (?=(?:now |also |still |no longer )*(?:lives|works|is|isn't"
    rf"|has|likes|loves"
    r"|moved|speaks|plays|studies|manages|runs|owns|prefers|hates|teaches|enjoys|doesn't|does not"
    r"|quit|left|used to)\b)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A clause with its subject found and its predicate in the third person."""

    subject: str
    display: str
    predicate: str


_CONTRACTIONS = (
    (re.compile(r"(?i)^(?:['’]m| am)\b"), "is"),
    (re.compile(r"(?i)^(?:['’]re| are)\b"), "is"),
    (re.compile(r"(?i)^['’]ve\b"), "has"),
    (re.compile(r"(?i)^['’]ll\b"), "will"),
    (re.compile(r"(?i)^['’]d (?=like|love|prefer|rather)"), "would"),
    (re.compile(r"(?i)^['’]d better\b"), "should"),
)
_FINITE = frozenset(
    words.words_in(
        """is was has had will would can could should must may might does did cannot can't won't
    wouldn't couldn't wasn't isn't hasn't shouldn't"""
    )
)
_PRONOUNS = (
    (re.compile(r"\bmyself\b", re.IGNORECASE), "themselves"),
    (re.compile(r"\bourselves\b", re.IGNORECASE), "themselves"),
    (re.compile(r"\b(?:my|our)\b", re.IGNORECASE), "their"),
    (re.compile(r"\b(?:mine|ours)\b", re.IGNORECASE), "theirs"),
    (re.compile(r"\b(?:I|we)(?:['’]m|['’]re| am| are)\b"), "they are"),
    (re.compile(r"\b(?:I|we)['’]ve\b"), "they have"),
    (re.compile(r"\b(?:I|we)['’]ll\b"), "they will"),
    (re.compile(r"\b(?:I|we)['’]d\b"), "they would"),
    (re.compile(r"\bI was\b|\bi was\b"), "they were"),
    (re.compile(r"\b(?:I|we)\b"), "they"),
    (re.compile(r"\b(?:me|us)\b"), "them"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cues:
    """The words around a predicate that say how it relates to what was known."""

    sentence: str
    clause: str
    sets_right: bool

    def relation(self, draft: Draft) -> Relation:
        if draft.relation is not None:
            return draft.relation
        if draft.is_sole and (self.sets_right or _CORRECTING.search(self.sentence)):
            return Relation.CORRECTS
        if draft.is_sole and _CONTRAST.search(self.clause):
            return Relation.CORRECTS
        if _COEXISTING.search(self.clause):
            return Relation.ADDS
        if draft.is_sole and _TURNED.search(self.clause):
            return Relation.REPLACES
        return Relation.ADDS


def facts(sentence: Sentence, *, said_at: datetime | None) -> list[Stated]:
    """Return what an English sentence states, in order."""
    if _UNREAL.search(sentence.text):
        return []
    found: list[Stated] = []
    denied: str | None = None
    for clause, start, stated in _clauses(sentence):
        predicate = stated.predicate if stated is not None else ""
        cues = _Cues(
            sentence=sentence.text,
            clause=clause.text,
            sets_right=denied is not None and predicate.startswith(denied),
        )
        for fact in _judged(clause.text, stated, cues, said_at=said_at):
            found.append(Stated(fact=fact, start=start, end=clause.start + len(clause.text)))
        denial = re.match(r"(?:(?P<be>is)|does) not (?P<verb>\w+)", predicate)
        if denial is not None:
            denied = "is" if denial["be"] else _conjugated(denial["verb"])
        else:
            denied = None
    return _settled(found)


def _settled(found: list[Stated]) -> list[Stated]:
    """Drop "not in Porto" where the same breath says where instead."""
    positive = {one.fact.attribute for one in found if not one.fact.label.startswith("not in ")}
    return [
        one
        for one in found
        if not (one.fact.label.startswith("not in ") and one.fact.attribute in positive)
    ]


def _clauses(sentence: Sentence) -> Iterator[tuple[Clause, int, _Subject | None]]:
    """Yield what may be believed: a clause, where its subject stands, and who states what."""
    text = sentence.text
    clauses = list(split(text, _BOUNDARY))
    if sentence.asks:
        # The question is the last clause; what was stated before it stands.
        clauses = clauses[:-1]
    quoted = quoted_spans(text)
    stated: _Subject | None = None
    stated_from = 0
    for number, clause in enumerate(clauses):
        if _is_reported(text[: clause.start]):
            return
        if BARRED in clause.text or any(first <= clause.start < last for first, last in quoted):
            stated = None
            continue
        start = clause.start
        found = _state(clause.text)
        if found is None and stated is not None and number:
            found, start = _inherit(stated, clause.text), stated_from
        stated, stated_from = found, start
        if _HEDGE.search(clause.text) is None:
            yield clause, start, found


def _judged(
    clause: str, subject: _Subject | None, cues: _Cues, *, said_at: datetime | None
) -> Iterator[Fact]:
    for draft, text in _owned(_bare(clause)):
        yield _fact(USER, draft, text, cues, said_at=said_at)
    if subject is None:
        return
    if (kinship := _kinship(subject)) is not None:
        draft, text = kinship
        yield _fact(USER, draft, text, cues, said_at=said_at)
        return
    for predicate, relation, is_past in _readings(subject.predicate, cues):
        drafts = _drafts(predicate)
        if not drafts and _FREE_TIME.search(clause):
            drafts = list(_pastime(predicate))
        for draft in drafts:
            if draft.attribute.startswith("plan:") and _TODAY.search(cues.sentence):
                continue
            text = _sentence_of(subject.display, draft.text or subject.predicate)
            if subject.subject != USER:
                text = _of_the_user(text)
            weighed = _weighed(draft, relation, subject.predicate)
            fact = _fact(subject.subject, weighed, text, cues, said_at=said_at)
            yield replace(fact, is_past=True, relation=Relation.ADDS) if is_past else fact


def _owned(bare: str) -> Iterator[tuple[Draft, str]]:
    """Yield what a clause says of something that is the user's."""
    for pattern, make in POSSESSIVES:
        if (match := pattern.match(bare)) is not None:
            for draft in make(match):
                yield draft, _sentence_of("", _whole(draft.text) or _as_users(bare))


def _kinship(subject: _Subject) -> tuple[Draft, str] | None:
    """Return what "Ana is my sister" says of the user."""
    kin = re.match(rf"is my {KIN_ADJECTIVES}(?P<kin>{KIN})\b(?!['’]s)", subject.predicate)
    if kin is None or subject.subject == USER:
        return None
    attribute = kin_attribute(kin["kin"], subject.subject)
    text = f"{subject.display} is the user's {kin['kin']}."
    return Draft(attribute=attribute, label=subject.subject), text


def _weighed(draft: Draft, relation: Relation | None, predicate: str) -> Draft:
    """Return a draft under what its predicate's own words do to what was known."""
    if relation is Relation.ENDED:
        return _ended(draft, predicate)
    if relation is not None and draft.is_sole:
        return replace(draft, relation=relation)
    return draft


_LIKE_THIS = re.compile(r"(?i)\b(?:like|such as) (?:this|that|these|those|it|you|yours)\b")


def _drafts(predicate: str) -> list[Draft]:
    if _LIKE_THIS.search(predicate):
        return []
    for pattern, make in PREDICATES:
        if (match := pattern.match(predicate)) is not None and (drafts := list(make(match))):
            return drafts
    return []


_OLD_BUT_NEW = re.compile(r"(?i)\bnot (?P<old>[^,;]{1,60}?),? but (?:rather |now )?(?P<new>.+)$")
_OVER_BUT = re.compile(
    r"(?i),? but (?:now |rather )*(?:in |at |for |to |as )*(?:an? |the )?(?P<new>\w.*)$"
)
_PAST_VERBS = {
    "lived": "lives", "worked": "works", "played": "plays", "had": "has", "owned": "owns",
    "loved": "loves", "liked": "likes", "hated": "hates", "was": "is", "studied": "studies",
    "enjoyed": "enjoys", "drove": "drives", "collected": "collects", "spoke": "speaks",
}  # fmt: skip
_SURELY_PAST = frozenset({"lived", "worked"})


def _readings(predicate: str, cues: _Cues) -> Iterator[tuple[str, Relation | None, bool]]:
    """Yield a predicate as the table reads it, its effect on what was known, and if it is over."""
    verb, _, rest = predicate.partition(" ")
    if (
        used := re.match(rf"(?:{ADVERBS} )*used to (?P<verb>\w+) ?(?P<rest>.*)", predicate)
    ) is not None:
        yield f"{_conjugated(used['verb'])} {used['rest']}", None, True
    elif verb in _PAST_VERBS and (verb in _SURELY_PAST or _LONG_AGO.search(cues.sentence)):
        yield f"{_PAST_VERBS[verb]} {rest}", None, True
    elif (contrast := _OLD_BUT_NEW.search(predicate)) is not None and "no longer" not in predicate:
        head = predicate[: contrast.start()]
        preposition = re.match(r"(?:in|at|for|as|to) ", contrast["old"])
        new = contrast["new"]
        if preposition is not None and not new.startswith(preposition.group()):
            new = preposition.group() + new
        yield (re.sub(r"^does $", "", head) + new), Relation.CORRECTS, False
    elif (over := re.match(r"(?P<be>is |has )?no longer (?P<rest>.+)", predicate)) is not None:
        yield (over["be"] or "") + over["rest"], Relation.ENDED, False
    elif _OVER.search(predicate) and (
        over := re.match(r"(?:(?P<is>is)|does) not (?P<verb>\w+)(?P<rest>.*)", predicate)
    ):
        plain = f"is {over['verb']}" if over["is"] else _conjugated(over["verb"])
        rest = re.sub(r"(?i),?\s*any ?(?:more|longer)\b", "", over["rest"])
        yield plain + rest, Relation.ENDED, False
    else:
        yield predicate, None, False


def _ended(draft: Draft, predicate: str) -> Draft:
    """Return what is over as the end of it; an allergy is never closed for all that may be left."""
    if draft.attribute == "allergy":
        return replace(draft, label=f"no longer {draft.label}")
    instead = _OVER_BUT.search(predicate)
    if instead is not None and draft.is_sole:
        return replace(draft, label=value_in(instead["new"]), relation=Relation.REPLACES)
    return replace(draft, relation=Relation.ENDED)


def _pastime(predicate: str) -> Iterator[Draft]:
    """Yield the hobby in what somebody does in their free time."""
    verb = re.match(rf"(?:{ADVERBS} )*(?P<verb>[a-z]+s) (?P<x>.+)", predicate)
    if verb is None:
        return
    hobby = activity_of(re.sub(r"e?s$", "", verb["verb"]) + "ing")
    value = value_in(verb["x"])
    if hobby is not None and is_worth(value):
        yield Draft(attribute=f"hobby:{hobby}", label=f"{verb['verb']} {value}")


def _fact(subject: str, draft: Draft, text: str, cues: _Cues, *, said_at: datetime | None) -> Fact:
    relation = cues.relation(draft)
    attribute = draft.attribute
    contrast = _CONTRAST.search(cues.clause)
    if relation is Relation.ADDS and contrast is not None and _CORRECTING.search(cues.sentence):
        word, _, topic = attribute.partition(":")
        if topic and word in {"preference", "hobby", "dislike", "language", "skill"}:
            relation, attribute = Relation.CORRECTS, f"{word}:{topic_of(contrast['old'])}"
    since = day_of(cues.clause, said_at) if relation is Relation.REPLACES else None
    return Fact(
        subject=subject,
        attribute=attribute,
        label=_told(draft.label) if subject == USER else draft.label,
        text=text,
        relation=relation,
        confidence=0.9 if draft.is_sole else 0.8,
        valid_from=None if since is None else since.isoformat(),
    )


_TAIL = re.compile(
    r"""(?ix)
    ,\s+(?:it|they|he|she|so|right|you|that)\b.*$
    | ,?\s+(?:i['’]m|i\ am|i['’]ve|we['’]re)\b.*$ | ,?\s+(?:because|since|as\ (?:it|they|i)\b
      |so\ (?:that|i|it)\b|which|where|who|whenever|if|when
      |and\ (?:it|they|he|she|that|the)\b|but|although|though|while
      |nice\ to\ meet\b
      |by\ the\ way|thanks|thank\ you|as\ you\ know|haha|lol|please)\b.*$
    """
)
_UNCLEAR = re.compile(r"(?i)\b(?:you|your|yours|it|this|that|these|those|there|here)\b")


def _sentence_of(display: str, predicate: str) -> str:
    text = predicate.strip()
    tail = _TAIL.search(text)
    if tail is not None and (_UNCLEAR.search(tail.group()) or len(text) > 120):  # noqa: PLR2004
        text = text[: tail.start()]
    text = re.sub(r"(?i)[\s,]+(?:too|as well|by the way|haha|lol)$", "", text.rstrip(" .!,;:"))
    text = f"{display} {text}".strip() if display else text
    if display.startswith("The user") and not display.startswith("The user's"):
        text = _told(text)
    return text[:1].upper() + text[1:] + "."


def _whole(text: str | None) -> str | None:
    """Return a rule's own words with the user as their subject, where they have none."""
    return None if text is None else text if text.startswith("the user") else f"the user {text}"


def _as_users(clause: str) -> str:
    """Return "my X is Y" as it is said of the user."""
    text = re.sub(r"(?i)^(?:my|our)\b", "the user's", clause)
    return _told(re.sub(r"(?i)^(?:\w+ )*calls? me\b", "the user is called", text))


def _told(text: str) -> str:
    """Return the first person's words in the third."""
    for pattern, other in _PRONOUNS:
        text = pattern.sub(other, text)
    return text


def _of_the_user(text: str) -> str:
    """Return what is said of somebody else, the speaker named."""
    for pattern, other in (
        (r"\b[Mm]y\b", "the user's"),
        (r"\b[Mm]e\b", "the user"),
        (r"\b[Oo]ur\b", "their"),
        (r"\b[Uu]s\b", "them"),
    ):
        text = re.sub(pattern, other, text)
    return text


def told_by_user(sentence: Sentence) -> str | None:
    """Return the predicate of a sentence whose subject is the user, if it may be believed."""
    if _UNREAL.search(sentence.text) or _HEDGE.search(sentence.text):
        return None
    stated = _state(sentence.text)
    return None if stated is None or stated.subject != USER else stated.predicate


def sentence_about_user(predicate: str) -> str:
    """Return a sentence that says this of the user."""
    return _sentence_of("The user", predicate)


def _is_reported(before: str) -> bool:
    tail = before.rstrip(" ,")
    if tail.endswith(":"):
        # "Bob: I live in Rome" is Bob's; "I misspoke: I live in Rome" is the user's.
        label = tail[:-1].strip()
        return (
            bool(_SPEAKER.match(label))
            and _LEADING.match(label + " ") is None
            and " I " not in f" {label} "
        )
    return _REPORTING.search(tail) is not None and not re.search(
        r"(?i)\bI (?:said|mentioned)$", tail
    )


def _state(clause: str) -> _Subject | None:
    text = _bare(clause)
    if (first := _I.match(text)) is not None:
        predicate = _in_third_person(text[first.end() :])
        return (
            None
            if predicate is None
            else _Subject(subject=USER, display="The user", predicate=predicate)
        )
    if (kin := _MY_PERSON.match(text)) is not None and kin["tail"] and "s" not in kin["tail"]:
        relation = f"{kin['adjectives'] or ''}{kin['kin']}"
        name = kin["name"]
        return _Subject(
            subject=name or f"user's {relation}",
            display=f"The user's {relation}" + (f" {name}" if name else ""),
            predicate=_plain(text[kin.end() :]),
        )
    somebody = _SOMEBODY.match(text)
    if somebody is not None and somebody["name"].split()[0].lower() not in words.COMMON_STARTERS:
        name = somebody["name"]
        return _Subject(subject=name, display=name, predicate=_plain(text[somebody.end() :]))
    return None


def _inherit(stated: _Subject, clause: str) -> _Subject | None:
    if not re.match(rf"(?i)(?:(?:also|now|still)\s+)?{_BASE_VERBS}\b", clause):
        return None
    is_user = stated.subject == USER
    predicate = _in_third_person(" " + clause) if is_user else _plain(clause)
    return None if predicate is None else replace(stated, predicate=predicate)


def _bare(clause: str) -> str:
    text = clause
    while (leading := _LEADING.match(text)) is not None:
        text = text[leading.end() :]
    return text


def _in_third_person(rest: str) -> str | None:
    """Return what follows "I" as it follows "the user": " live in" becomes "lives in"."""
    for pattern, verb in _CONTRACTIONS:
        if (match := pattern.match(rest)) is not None:
            return _plain(verb + " " + rest[match.end() :].strip())
    if not rest.strip() or rest[:1] in {"'", "’"}:
        return None
    said = rest.strip()
    adverbs = re.match(rf"(?i)(?:(?:{ADVERBS}|no longer|never|rarely|hardly ever)\s+)*", said)
    head = "" if adverbs is None else adverbs.group()
    verb, _, tail = said[len(head) :].partition(" ")
    denied = verb.lower() in {"don't", "don’t"} or (
        verb.lower() == "do" and tail.startswith("not ")
    )
    if denied:
        return _plain(f"{head}does not {tail.removeprefix('not ')}")
    if verb.lower() == "am":
        return _plain(f"is {head}{tail}")
    return _plain(f"{head}{_conjugated(verb)} {tail}")


_CONJUGATED = {"are": "is", "were": "was", "have": "has", "do": "does", "go": "goes"}
_BASE_IN_ED = frozenset({"need", "feed", "heed", "exceed", "succeed", "proceed"})


def _conjugated(verb: str) -> str:
    low = verb.lower()
    if low in _CONJUGATED:
        return _CONJUGATED[low]
    is_past = low in words.IRREGULAR_PAST or (low.endswith("ed") and low not in _BASE_IN_ED)
    if is_past or low in _FINITE:
        return low
    if re.search(r"(?:s|x|z|ch|sh|o)$", low):
        return low + "es"
    if re.search(r"[^aeiou]y$", low):
        return low[:-1] + "ies"
    return low + "s"


def _plain(predicate: str) -> str:
    text = predicate.strip()
    for pattern, other in (
        (r"(?i)\bisn['’]t\b", "is not"),
        (r"(?i)\bwasn['’]t\b", "was not"),
        (r"(?i)\bdoesn['’]t\b", "does not"),
        (r"(?i)\bdidn['’]t\b", "did not"),
        (r"(?i)\bhaven['’]t\b|\bhasn['’]t\b", "has not"),
        (r"(?i)\bcan['’]t\b|\bcan not\b", "cannot"),
        (r"(?i)\bwon['’]t\b", "will not"),
        (r"(?i)\bwouldn['’]t\b", "would not"),
        (r"(?i)\bcouldn['’]t\b", "could not"),
    ):
        text = re.sub(pattern, other, text)
    return text
