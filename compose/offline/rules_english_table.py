"""The table of English rules: a predicate in the third person, and the facts it makes.

Every pattern is matched at the head of a predicate; its group `x` holds the value.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compose.offline import rules_english_words as words
from compose.offline.rules_english_values import (
    POINTING,
    activity_of,
    category_of,
    is_place,
    is_worth,
    members_of,
    singular,
    topic_of,
    value_in,
)
from schemas.memory import Relation


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a rule makes of a predicate, before the sentence's cues are weighed."""

    attribute: str
    """Where it belongs."""
    label: str
    """The value."""
    is_sole: bool = False
    """Whether a subject has one such value at a time."""
    relation: Relation | None = None
    """Set where the words themselves say it."""
    text: str | None = None
    """Set where the predicate as a whole says too much."""


Maker = Callable[[re.Match[str]], Iterator[Draft]]
Rule = tuple[re.Pattern[str], Maker]

NAME = r"[A-Z][\w’'-]*\w(?: [A-Z][\w’'-]*\w)?"
KIN = rf"(?:{words.RELATIVES}|{words.PARTNERS}|{words.ACQUAINTANCES})"
KIN_ADJECTIVES = (
    r"(?:(?:older|younger|little|big|elder|eldest|oldest|youngest|twin|best|close|old|dear|good|new"
    r"|former|ex|late|only|middle) )*"
)
ADVERBS = words.any_of(
    *words.words_in(
        """really also usually often always mostly sometimes particularly especially
    absolutely truly still currently recently just actually now only both generally mainly
    normally simply totally completely definitely personally honestly genuinely quite very
    rather deeply strongly occasionally frequently regularly already originally
    first finally even certainly obviously basically previously formerly so"""
    ),
    "kind of",
    "sort of",
    "most of all",
)
_A = rf"(?:{ADVERBS}\s+)*"
_ENDED = Relation.ENDED
_REPLACES = Relation.REPLACES


# --- makers --------------------------------------------------------------------------------------


def kin_attribute(kin: str, name: str | None) -> str:
    """Return where somebody belongs who is this to the user."""
    low = {"kid": "child", "children": "child"}.get(kin.lower(), kin.lower())
    if re.fullmatch(words.PARTNERS, low):
        return "partner"
    if low == "child" or re.fullmatch(words.RELATIVES, low):
        return f"relative:{low}"
    return f"relation:{(name or low).lower()}"


def _sole(attribute: str, *, relation: Relation | None = None) -> Maker:
    def make(match: re.Match[str]) -> Iterator[Draft]:
        value = value_in(match["x"])
        if is_worth(value):
            yield Draft(attribute=attribute, label=value, is_sole=True, relation=relation)

    return make


def _many(attribute: str) -> Maker:
    def make(match: re.Match[str]) -> Iterator[Draft]:
        value = value_in(match["x"], listing=True)
        if is_worth(value):
            yield Draft(attribute=attribute, label=value)

    return make


def _by_topic(word: str, *, relation: Relation | None = None) -> Maker:
    def make(match: re.Match[str]) -> Iterator[Draft]:
        value = value_in(match["x"])
        if is_worth(value):
            attribute = f"{word}:{topic_of(value)}"
            yield Draft(attribute=attribute, label=value, relation=relation)

    return make


def _fixed(attribute: str, label: str, *, relation: Relation | None = None) -> Maker:
    def make(_match: re.Match[str]) -> Iterator[Draft]:
        yield Draft(attribute=attribute, label=label, is_sole=True, relation=relation)

    return make


def _verbatim(attribute: str, *, relation: Relation | None = None) -> Maker:
    def make(match: re.Match[str]) -> Iterator[Draft]:
        yield Draft(attribute=attribute, label=_label(match["x"]), is_sole=True, relation=relation)

    return make


def _label(text: str) -> str:
    return text.strip(" ,.!?;:")[:120]


_NOWHERE = words.words_in(
    "fear denial peace hope harmony poverty pain silence chaos luxury style sin doubt town italics"
)


def _place(*, relation: Relation | None = None) -> Maker:
    def make(match: re.Match[str]) -> Iterator[Draft]:
        place = value_in(match["x"])
        # Who writes no capitals at all writes none for a town either.
        is_typed_small = match.string.islower() and len(place.split()) == 1
        if is_worth(place) and (is_place(place) or (is_typed_small and place not in _NOWHERE)):
            yield Draft(attribute="home", label=place, is_sole=True, relation=relation)

    return make


def _not_there(match: re.Match[str]) -> Iterator[Draft]:
    place = value_in(match["x"])
    if is_place(place):
        yield Draft(attribute="home", label=f"not in {place}", is_sole=True)


def _name(match: re.Match[str]) -> Iterator[Draft]:
    first = match["x"].split()[0].lower()
    if first not in words.NATIONALITIES | words.FAITHS | words.COMMON_STARTERS:
        text = f"is called {match['x']}"
        yield Draft(attribute="name", label=match["x"], is_sole=True, text=text)


def _nationality_or_faith(match: re.Match[str]) -> Iterator[Draft]:
    word = match["x"].lower()
    if word in words.NATIONALITIES:
        yield Draft(attribute="origin", label=match["x"], is_sole=True)
    elif word in words.FAITHS:
        yield Draft(attribute="belief:faith", label=match["x"])


def _works_at(match: re.Match[str]) -> Iterator[Draft]:
    value = re.split(r"\s+(?:as|in the|in [A-Z])\b", value_in(match["x"]))[0]
    if is_worth(value) and not re.match(
        r"(?i)home|night|the moment|least|all|myself"
        r"|(?:my|our|the|an?) (?:current |new |old )?(?:company|job)\b",
        value,
    ):
        yield Draft(attribute="employer", label=value, is_sole=True)
    job = re.search(r"\bas (?:an?|the) (?P<x>[^,.;]+)", match["x"])
    if job is not None:
        yield from _sole("occupation")(job)


def _joined(match: re.Match[str]) -> Iterator[Draft]:
    value = value_in(match["x"])
    is_employer = re.match(
        r"[A-Z]|(?i:an? [\w -]*(?:company|firm|startup|bank|school|hospital|agency|university))",
        value,
    )
    if is_employer:
        yield Draft(attribute="employer", label=value, is_sole=True, relation=_REPLACES)


def _relatives(match: re.Match[str]) -> Iterator[Draft]:
    attribute = kin_attribute(match["kin"], None)
    label = match["name"] or f"{match['count'].lower()} {match['kins']}"
    yield Draft(attribute=attribute, label=label, is_sole=attribute == "partner")


def _pet(match: re.Match[str]) -> Iterator[Draft]:
    kind = match["pet"].lower().removesuffix("s")
    yield Draft(attribute=f"pet:{kind}", label=match["name"] or value_in(match["x"]))


def _without(match: re.Match[str]) -> Iterator[Draft]:
    value = value_in(match["x"], listing=True)
    if is_worth(value):
        yield Draft(attribute="diet", label=f"no {value}")


def _allergy(match: re.Match[str]) -> Iterator[Draft]:
    value = value_in(match["x"], listing=True)
    if is_worth(value):
        denial = "not " if match.groupdict().get("denial") else ""
        yield Draft(attribute="allergy", label=denial + value)


def _speaks(match: re.Match[str]) -> Iterator[Draft]:
    for language in re.findall(words.LANGUAGES, match["x"]):
        yield Draft(attribute=f"language:{language.lower()}", label=language)


def _learns(match: re.Match[str]) -> Iterator[Draft]:
    value = value_in(match["x"])
    language = re.match(rf"({words.LANGUAGES})\b", value)
    skill = re.sub(r"^(?:how )?(?:to )?(?:play(?:ing)? )?(?:the )?", "", value)
    if language is not None:
        yield Draft(attribute=f"language:{language[1].lower()}", label=f"learning {language[1]}")
    elif is_worth(skill):
        yield Draft(attribute=f"skill:{topic_of(skill)}", label=f"learning {value}")


def _hobby_in(value: str) -> str | None:
    """Return the hobby that "chess", "to play chess" or "to paint" names."""
    plain = re.sub(r"^to (?:play )?(?:the )?", "", value)
    return activity_of(plain) or activity_of(re.sub(r"^(\w*?)e?( |$)", r"\1ing\2", plain))


def _took_up(match: re.Match[str]) -> Iterator[Draft]:
    value = value_in(match["x"])
    hobby = _hobby_in(value)
    if hobby is not None and hobby not in {"watching", "reading", "listening"}:
        yield Draft(attribute=f"hobby:{hobby}", label=value)


def _likes_to(match: re.Match[str]) -> Iterator[Draft]:
    value = value_in(match["x"])
    if is_worth(value):
        hobby = _hobby_in(value)
        attribute = f"preference:{topic_of(value)}" if hobby is None else f"hobby:{hobby}"
        yield Draft(attribute=attribute, label=value)


def _hobbies(match: re.Match[str]) -> Iterator[Draft]:
    members = members_of(match["x"])
    for member in members:
        if is_worth(member):
            hobby = activity_of(member) or topic_of(member)
            text = None if len(members) == 1 else f"has {member} as a hobby"
            yield Draft(attribute=f"hobby:{hobby}", label=member, text=text)


def _likes(match: re.Match[str]) -> Iterator[Draft]:
    members = members_of(match["x"])
    if re.match(r"the ", match["x"]) and not is_worth(value_in(match["x"], listing=True)):
        return
    for member in members:
        if not is_worth(member) or member in {"playing", "help", "making", "doing"}:
            continue
        hobby = activity_of(member)
        attribute = f"hobby:{hobby}" if hobby else f"preference:{topic_of(member)}"
        text = None if len(members) == 1 else f"{match['verb']} {member}"
        yield Draft(attribute=attribute, label=member, text=text)


def _prefers(match: re.Match[str]) -> Iterator[Draft]:
    value = value_in(match["x"])
    if is_worth(value):
        yield Draft(attribute=f"preference:{category_of(value)}", label=value, is_sole=True)


def _switched(match: re.Match[str]) -> Iterator[Draft]:
    old, new = value_in(match["old"]), value_in(match["x"])
    if is_worth(old) and is_worth(new):
        attribute = f"preference:{topic_of(old)}"
        yield Draft(attribute=attribute, label=new, is_sole=True, relation=_REPLACES)


def _stopped(match: re.Match[str]) -> Iterator[Draft]:
    value = value_in(match["x"])
    low = value.lower()
    first = low.split()[0] if low else ""
    edible = words.FOODS | words.CATEGORIES["drink"] | words.CATEGORIES["food"]
    if first == "eating" and low.split()[-1] in words.FOODS:
        yield Draft(attribute="diet", label=f"no {value[7:]}")
    elif low.startswith("working at "):
        yield Draft(attribute="employer", label=value[11:], is_sole=True, relation=_ENDED)
    elif low.endswith("job"):
        yield Draft(attribute="employer", label=value, is_sole=True, relation=_ENDED)
    elif first in {"smoking", "drinking"}:
        topic = " ".join(low.split()[:2])
        yield Draft(attribute=f"habit:{topic}", label=value, relation=_ENDED)
    elif (hobby := activity_of(value)) is not None:
        yield Draft(attribute=f"hobby:{hobby}", label=value, relation=_ENDED)
    elif low in edible:
        yield Draft(attribute=f"preference:{low}", label=value, relation=_ENDED)


_STATIVE = frozenset(
    words.words_in(
        """feels thinks knows wants is has finds hopes worries hears sees seems gets forgets
    needs tries loses fails ends believes says tells asks wonders was had comes gives
    makes looks sounds lets keeps wishes dreams appreciates agrees means does will would
    could should can cannot may might must takes becomes remembers understands considers
    chooses starts helps brings puts"""
    )
)


def _habit(match: re.Match[str]) -> Iterator[Draft]:
    verb, rest = match["verb"].lower(), match["x"].strip()
    if verb in _STATIVE or verb.startswith(("talk", "chat")) or (rest and POINTING.search(rest)):
        return
    if not rest and not re.match(
        r"(?:exercise|meditate|swim|jog|run|paint|sing|dance|pray)s", verb
    ):
        return
    topic = topic_of(value_in(rest)) if rest else ""
    plain = [word for word in topic.split() if word not in {"general", "the", "a", "to"}]
    yield Draft(attribute=f"habit:{' '.join([verb, *plain][:2])}", label=_label(match.group()))


def _sleep(match: re.Match[str]) -> Iterator[Draft]:
    topic = "bedtime" if "bed" in match.group() else "waking"
    yield Draft(attribute=f"habit:{topic}", label=_label(match.group()), is_sole=True)


def _aim(word: str) -> Maker:
    def make(match: re.Match[str]) -> Iterator[Draft]:
        value = value_in(match["x"])
        if not is_worth(value):
            return
        place = _destination(match["x"])
        attribute = f"{word}:{_intent(value)}" if place is None else f"travel:{place.lower()}"
        yield Draft(attribute=attribute, label=value)

    return make


_TODAY = re.compile(r"(?i)\b(?:today|tonight|this (?:morning|afternoon|evening)|later|soon)\b")
_IDLE = re.compile(
    r"(?i)(?:try|consider|keep|do|follow|take (?:it|your|care)|remember|work hard|think|be\b|give"
    r"|let|check|look|see\b|go (?:now|for|out|home|back|to (?:bed|sleep|work))"
    r"|take an?\b|enjoy|watch|ask|talk|chat|use|practice more|rest|have\b|make\b"
    r"|read (?:it|some))"
)


def _plan(match: re.Match[str]) -> Iterator[Draft]:
    if _TODAY.search(match.string) is None and _IDLE.match(match["x"]) is None:
        yield from _aim("plan")(match)


def _intent(value: str) -> str:
    idle = {"a", "an", "the", "my", "their", "to", "more", "new", "some", "how", "of"}
    tokens = [token for token in re.findall(r"[\w'-]+", value.lower()) if token not in idle]
    return " ".join(tokens[:2]) or "general"


_JOURNEY = re.compile(
    r"\b(?:travel(?:l?ing)?|trip|go(?:ing)?|fly(?:ing)?|journey|vacation|holiday|visit(?:ing)?)\b"
    rf"[^,.;]{{0,25}}?\b(?:to |in |visit(?:ing)? )?(?:the )?(?P<place>{NAME})"
)


def _destination(value: str) -> str | None:
    match = _JOURNEY.search(value)
    return None if match is None or re.match(words.MONTHS, match["place"]) else match["place"]


def _travelled(match: re.Match[str]) -> Iterator[Draft]:
    place = value_in(match["x"])
    yield Draft(attribute=f"travel:{place.lower()}", label=place)


def _appointment(match: re.Match[str]) -> Iterator[Draft]:
    yield Draft(attribute=f"appointment:{match['what'].lower()}", label=_label(match["x"]))


# --- the table -----------------------------------------------------------------------------------

_HOBBY = f"(?:{'|'.join(sorted(words.HOBBIES))})"
_FOOD = f"(?:{'|'.join(sorted(words.FOODS))})"
_EDIBLE = "|".join(sorted(words.FOODS | words.CATEGORIES["drink"] | words.CATEGORIES["food"]))
_FREQUENCY = (
    r"(?:every (?:single )?(?:day|morning|evening|night|week|weekend|month|year|summer"
    r"|winter|\w+day)"
    r"|each (?:day|morning|evening|week)|(?:once|twice|three times|\d times) (?:a|per|every) \w+"
    r"|on (?:\w+days|weekends|weekdays)|daily(?=$|[,.!])|before bed|after work|in the mornings?)"
)
_FIELD = (
    r"(?:marketing|finance|it|sales|hr|education|healthcare|construction|retail|logistics|tech|design"
    r"|advertising|publishing|banking|insurance|tourism|hospitality|agriculture|research|media|law"
    r"|software|engineering|human resources|customer service|real estate"
    r"|the [\w ]+ (?:industry|sector))"
)
_BUSINESS = (
    r"(?:business|company|shop|store|restaurant|caf[ée]|bakery|studio|agency|farm|startup|team"
    r"|department|school|clinic|hotel|audit)"
)
_WORK = (
    r"(?:novel|book|thesis|dissertation|app|game|website|project|paper|album|screenplay|memoir"
    r"|startup|robot|documentary|blog|library|translation|house|boat|play|cookbook)"
)
_TRIAL = (
    r"(?:exams?|interview|marathon|competition|test|wedding|speech|race|presentation|triathlon)"
)
_FOND = (
    r"(?:is|has always been|has been)"
    rf" {_A}(?:a (?:big |huge )?fan of|fond of|into|keen on|crazy about|obsessed with"
    r"|passionate about|interested in)"
)

_WHO: Sequence[tuple[str, Maker]] = (
    (rf"is (?:called|named) (?P<x>{NAME})", _name),
    (rf"is (?P<x>{NAME})(?:[,.!]|$| and\b)", _name),
    (r"is (?P<x>[A-Za-z]+)(?:[,.!]|$)", _nationality_or_faith),
    (r"is (?P<x>\d{1,3})(?: years old)?(?:[,.!]|$| now\b| and\b)", _verbatim("age")),
    (r"(?:has )?(?:just )?turned (?P<x>\d{1,3})\b", _verbatim("age", relation=_REPLACES)),
    (
        rf"was born (?:on|in) (?P<x>(?:the )?(?:\d{{1,2}}(?:st|nd|rd|th)? (?:of )?)?"
        rf"(?:{words.MONTHS}|\d{{4}})\b[\w ,]{{0,12}})",
        _verbatim("birthday"),
    ),
    (r"was born (?:and (?:raised|bred) )?in (?P<x>[A-Z].+)", _sole("origin")),
    (rf"(?:is|comes|came) {_A}from (?P<x>[A-Z].+)", _sole("origin")),
    (r"grew up (?:in|on|near) (?P<x>.+)", _sole("origin")),
)

_WHERE: Sequence[tuple[str, Maker]] = (
    (rf"{_A}does not (?:live|reside) (?:in|at|near) (?P<x>.+)", _not_there),
    (
        rf"(?:is )?{_A}(?:lives|living|resides|residing|based|has lived|has been living|settled)"
        r"(?: \w+ly| alone| together)? (?:in|at|near|on|outside|outside of) (?P<x>.+)",
        _place(),
    ),
    (
        rf"(?:has )?{_A}(?:moved|relocated)(?: \w+| with \w+ \w+| my \w+)?(?: from [\w ]+?)?"
        r" (?:back )?(?:to|into) (?P<x>.+)",
        _place(relation=_REPLACES),
    ),
    (
        rf"{_A}lives (?:together )?(?P<x>with (?:my|their|his|her|two|three|an?) .+|alone)\b",
        _verbatim("household"),
    ),
)

_OCCUPATION: Sequence[tuple[str, Maker]] = (
    (
        rf"(?:is |has |has been )?{_A}(?:works|working|worked|employed) (?:at|for|by) (?P<x>.+)",
        _works_at,
    ),
    (
        rf"(?:is |has |has been )?{_A}(?:works|working|worked) (?:part[- ]time |full[- ]time )?"
        r"as (?:an?|the) (?P<x>.+)",
        _sole("occupation"),
    ),
    (rf"(?:is |has )?{_A}(?:works|working) (?P<x>in {_FIELD})\b", _verbatim("occupation")),
    (
        rf"is {_A}(?:an?|the) (?P<x>(?:[\w-]+ ){{0,3}}?{words.JOBS})\b(?! (?:of|at heart|when))",
        _verbatim("occupation"),
    ),
    (
        rf"is {_A}(?P<x>retired|unemployed|self-employed|between jobs|freelancing)\b",
        _verbatim("occupation"),
    ),
    (r"(?:has )?(?:just |recently )?(?P<x>retired)\b", _verbatim("occupation", relation=_REPLACES)),
    (
        r"(?:became|has become|was promoted to|got promoted to) (?:an? |the )?"
        rf"(?P<x>(?:[\w-]+ ){{0,3}}?{words.JOBS})\b",
        _verbatim("occupation", relation=_REPLACES),
    ),
    (
        r"(?:has )?(?:just |recently |now )?(?:joined|started (?:working )?(?:at|for)"
        r"|started a new job (?:at|with)|(?:got|landed|found|took|accepted) an? (?:new )?"
        r"(?:job|position|role|offer) (?:at|with|from)) (?P<x>.+)",
        _joined,
    ),
    (
        r"(?:has )?(?:just |recently )?(?:left|quit|resigned from) (?P<x>my (?:\w+ )?job)\b",
        _verbatim("employer", relation=_ENDED),
    ),
    (
        r"(?:has )?(?:just |recently )?(?:resigned|been laid off|was laid off|got fired)\b",
        _fixed("employer", "none", relation=_ENDED),
    ),
    (
        r"(?:now |also )*(?:runs|owns|founded|manages|leads)"
        rf" (?P<x>(?:an?|the|my|our) (?:[\w'-]+ ){{0,4}}?{_BUSINESS})\b",
        _many("occupation"),
    ),
)

_EDUCATION: Sequence[tuple[str, Maker]] = (
    (
        rf"(?:is )?{_A}(?:studies|studying|majors in|majoring in|studied|majored in)"
        r" (?!for\b|hard|at home|at the lib|a lot|every|how|it\b)(?P<x>(?!.*\b(?:exam|test)).+)",
        _sole("education"),
    ),
    (
        rf"is {_A}(?P<x>(?:an? |in )(?:[\w-]+ ){{0,3}}?(?:student|undergraduate|freshman|sophomore"
        r"|high school|college|grad school|university)\b[\w ]*)",
        _verbatim("education"),
    ),
    (r"(?:has )?(?:recently |just )?graduated (?P<x>(?:from|in|with) .+)", _verbatim("education")),
    (
        r"(?:has|is doing|is pursuing|is working on|did|holds) (?P<x>(?:an?|my) (?:[\w']+ ){0,2}?"
        r"(?:degree|phd|PhD|doctorate|diploma|MBA|bachelor|master)\b.*)",
        _many("education"),
    ),
    (
        r"(?:goes|is going) to (?P<x>(?:[\w']+ ){0,4}?(?:university|college|high school|art school"
        r"|law school|med school))\b",
        _verbatim("education"),
    ),
)

_PEOPLE: Sequence[tuple[str, Maker]] = (
    (
        rf"is {_A}(?P<x>(?:happily )?(?:married|engaged|divorced|widowed|single"
        r"|in a relationship)(?: to [A-Z]\w+)?)(?=[,.!]|$| and\b| with\b| now\b)",
        _verbatim("partner"),
    ),
    (
        r"(?:has )?(?:just |recently )?got (?P<x>married|engaged|divorced)\b(?: to [A-Z]\w+)?",
        _verbatim("partner", relation=_REPLACES),
    ),
    (r"broke up with (?P<x>my \w+)", _verbatim("partner", relation=_ENDED)),
    (
        rf"{_A}has (?P<count>{words.NUMBERS}) (?:(?!imaginary)[\w-]+ ){{0,2}}?"
        rf"(?P<kins>(?P<kin>{words.RELATIVES}|{words.PARTNERS}|kid|child|children)s?)\b"
        rf"(?:,? (?:who is |who's )?(?:called|named) (?P<name>{NAME}))?",
        _relatives,
    ),
    (
        rf"{_A}(?:has|adopted|got|owns|has adopted|has got|keeps)"
        rf" (?P<x>{words.NUMBERS} (?:(?!toy|stuffed|hot|imaginary)[\w-]+ ){{0,3}}?"
        rf"(?P<pet>{words.PETS})s?)\b(?! food| person| show| shelter| video)"
        rf"(?:,? (?:who is |whose name is |which is )?(?:called|named)? ?(?P<name>{NAME}))?",
        _pet,
    ),
)

_BODY: Sequence[tuple[str, Maker]] = (
    (rf"is {_A}(?P<denial>not )?(?:\w+ly )?allergic to (?P<x>.+)", _allergy),
    (r"has (?:an? )?(?:\w+ )?(?P<x>[\w-]+) allergy\b", _allergy),
    (r"is (?P<x>(?:lactose|gluten|histamine|fructose)[- ]intolerant)\b", _verbatim("allergy")),
    (r"(?:is intolerant to|cannot tolerate) (?P<x>.+)", _allergy),
    (
        rf"is {_A}(?:an? |on an? )?(?:strict |committed |lifelong )?(?P<x>{words.DIETS})\b",
        _verbatim("diet"),
    ),
    (
        rf"(?:became|turned|went|has become|has gone) (?:an? )?(?P<x>{words.DIETS})\b",
        _verbatim("diet", relation=_REPLACES),
    ),
    (rf"follows (?:an? )?(?:strict )?(?P<x>{words.DIETS})\b", _verbatim("diet")),
    (
        rf"{_A}(?:does not|never|cannot|avoids) {_A}(?:eat|eats|eating|drink|drinks|drinking"
        rf"|consume) (?:any )?(?P<x>(?:[\w-]+ ){{0,2}}?{_FOOD}\b(?:(?:,| and| or) [\w -]+)?)",
        _without,
    ),
    (
        rf"{_A}(?:has|suffers from|lives with|is recovering from)"
        rf" (?P<x>(?:\w+ )?{words.CONDITIONS})\b",
        _by_topic("health"),
    ),
    (r"(?:has been|was) diagnosed with (?P<x>.+)", _by_topic("health")),
    (
        r"is (?P<x>(?:\w+ (?:weeks|months) )?pregnant|colou?r[- ]?blind|deaf|left-handed|diabetic"
        r"|dyslexic)\b",
        _by_topic("health"),
    ),
)

_SKILLS: Sequence[tuple[str, Maker]] = (
    (rf"{_A}(?:speaks|is fluent in|is a native speaker of) (?P<x>.*)", _speaks),
    (
        rf"(?:is |has been |{_A})+(?:learning|learns|started learning|started to learn)"
        r" (?P<x>(?!that\b|a lot\b|(?:a |some )?new\b|about\b|many\b|so\b|from\b|more\b|some\b).+)",
        _learns,
    ),
    (
        rf"(?:has )?{_A}(?:started|begun|began|taken up|took up)(?: learning| to learn)?(?: how)?"
        r" (?P<x>.+)",
        _took_up,
    ),
    (
        rf"{_A}(?:can|knows how to) (?P<x>(?:play|cook|swim|drive|ski|code|program|sew|knit|paint"
        r"|draw|sing|dance|ride|juggle|sail)\b.*)",
        _by_topic("skill"),
    ),
    (
        rf"{_A}plays (?P<x>(?:the )?(?:{_HOBBY}|saxophone|trumpet|clarinet|harp|bass|harmonica"
        r"|accordion|poker|bridge|video games|board games)\b(?:(?:,| and) [\w ]+)?)",
        _hobbies,
    ),
    (rf"{_A}(?:does|practi[cs]es|goes) (?P<x>{_HOBBY})\b", _hobbies),
    (rf"{_A}collects (?P<x>.+)", _by_topic("hobby")),
)

_LIKINGS: Sequence[tuple[str, Maker]] = (
    (
        rf"{_A}(?:does not|never) {_A}(?:like|love|enjoy|care for) (?P<x>.+)",
        _by_topic("dislike"),
    ),
    (
        rf"{_A}(?:hates|dislikes|cannot stand|detests|loathes|avoids|is not (?:a fan of|into"
        rf"|fond of)|is {_A}(?:afraid|scared|terrified) of) (?P<x>.+)",
        _by_topic("dislike"),
    ),
    (rf"(?:has )?{_A}switched from (?P<old>[\w ]+?) to (?P<x>.+)", _switched),
    (rf"(?:would )?{_A}prefers? (?P<x>.+)", _prefers),
    (
        rf"{_A}(?P<verb>likes|loves|enjoys|adores|has always (?:liked|loved|enjoyed)|{_FOND})"
        r" (?P<x>.+)",
        _likes,
    ),
    (
        rf"{_A}(?P<verb>likes|loves|enjoys) to (?P<x>(?!go\b|do\b|see\b|be\b|have\b|hear\b|know\b"
        r"|talk\b|try\b|think\b|share\b|chat\b|believe\b|help\b|play(?: with|$)|meet\b|learn\b).+)",
        _likes_to,
    ),
    (
        rf"{_A}(?:drinks|eats)"
        rf" (?P<x>(?:(?!my|the|your)[\w-]+ )?(?:{_EDIBLE})\b)(?! with| for)",
        _by_topic("preference"),
    ),
)

_DOINGS: Sequence[tuple[str, Maker]] = (
    (rf"(?:has )?{_A}(?:stopped|quit|gave up|given up) (?P<x>.+)", _stopped),
    (
        rf"(?:has )?{_A}sold (?:my|our|their) (?P<x>(?:\w+ )?{words.THINGS})\b",
        _by_topic("possession", relation=_ENDED),
    ),
    (
        rf"(?:has )?{_A}(?:has|owns|drives|bought|got)"
        rf" (?P<x>{words.NUMBERS} (?:[\w'-]+ ){{0,3}}?{words.THINGS})\b(?! key)",
        _by_topic("possession"),
    ),
    (r"drives (?P<x>an? [A-Z][\w -]*)", _verbatim("possession:car")),
    (
        rf"{_A}uses (?P<x>(?:an? |my )?[A-Z][\w.+#-]*(?: [A-Z0-9][\w.-]*)?)"
        r"(?=$|[,.!]| (?:for|as|to|on|at|every|and)\b)",
        _by_topic("possession"),
    ),
    (
        rf"(?:is |has been )?{_A}(?:working on|works on|writing|building|developing|designing"
        rf"|translating) (?P<x>(?:an?|my|our|the) (?!(?:\w+ )?(?:project"
        rf"|paper)(?: lately| now)?$)(?:[\w'-]+ ){{0,3}}?{_WORK}\b.*)",
        _by_topic("project"),
    ),
    (
        rf"(?:is |has been )?{_A}(?:preparing|studying|training) for"
        rf" (?P<x>(?:an?|my|the|our) (?:[\w'-]+ ){{0,3}}?{_TRIAL}\b.*)",
        _by_topic("plan"),
    ),
    (
        rf"{_A}(?:hopes|wants|aims|dreams of|is determined|is trying|would {_A}(?:like|love))"
        rf" (?:to )?(?:be able to )?(?P<x>{words.GOAL_VERBS}\b.+)",
        _aim("goal"),
    ),
    (r"has always (?:wanted|dreamed of|dreamt of) (?:to )?(?P<x>.+)", _aim("goal")),
    (
        rf"(?:has |is )?{_A}(?:been )?(?:planning|plans|intends|planned"
        rf"|going)(?: on)? to (?P<x>.+)",
        _plan,
    ),
    (
        rf"(?:has |is )?{_A}(?:been )?(?:planning|plans)"
        r" (?P<x>an? (?:[\w-]+ )?(?:trip|journey|vacation|holiday|wedding|move|party)\b.*)",
        _plan,
    ),
    (
        r"will (?P<x>(?:travel|move|fly|start|marry|graduate|visit|retire)\b.*"
        rf"(?:{words.MONTHS}|next \w+|\b20\d\d|in [A-Z]|to [A-Z]).*)",
        _aim("plan"),
    ),
    (r"(?:has )?(?:been to|visited|travell?ed to) (?P<x>[A-Z].+)", _travelled),
    (
        r"has (?P<x>(?:an? |my )(?P<what>(?:[\w'-]+ )?(?:appointment|interview|exam|flight|surgery"
        r"|checkup|wedding|concert))\b.*\b(?:on|at|tomorrow|next|in)\b.+)",
        _appointment,
    ),
    (rf"{_A}(?P<verb>[a-z]+s) (?P<x>[^,;]*?) ?\b{_FREQUENCY}", _habit),
    (r"(?:usually|always|never|regularly) (?P<verb>[a-z]+s)\b(?P<x>[^,;]*)", _habit),
    (rf"{_A}(?:gets up|wakes up|goes to bed) (?P<x>(?:very )?(?:early|late|at \d.*))", _sleep),
)

_MINDS: Sequence[tuple[str, Maker]] = (
    (rf"{_A}believes in (?P<x>.+)", _by_topic("belief")),
    (r"(?:strongly|firmly|deeply) believes (?:that )?(?P<x>.+)", _by_topic("belief")),
    (
        rf"is an? (?:\w+ )?(?P<x>(?i:{'|'.join(sorted(words.FAITHS))}))\b",
        _verbatim("belief:faith"),
    ),
)


def _compiled(rules: Sequence[tuple[str, Maker]]) -> tuple[Rule, ...]:
    return tuple((re.compile(pattern), maker) for pattern, maker in rules)


PREDICATES = _compiled(
    (
        *(*_WHO, *_WHERE, *_OCCUPATION, *_EDUCATION, *_PEOPLE),
        *(*_BODY, *_SKILLS, *_LIKINGS, *_DOINGS, *_MINDS),
    )
)
"""Rules on a predicate in the third person; the first that yields anything is taken."""

# --- what is "mine" ------------------------------------------------------------------------------


def _my_favourite(match: re.Match[str]) -> Iterator[Draft]:
    kind = match["kind"].lower()
    value = value_in(match["x"], listing=True)
    tokens = kind.split()
    fields = [field for field, members in words.CATEGORIES.items() if tokens[-1] in members]
    if is_worth(value):
        topic = fields[0] if fields and len(tokens) == 1 else " ".join(tokens[-2:])
        yield Draft(attribute=f"preference:{singular(topic)}", label=value, is_sole=True)


def _my_person(match: re.Match[str]) -> Iterator[Draft]:
    name = match["name"]
    if name.split()[0].lower() not in words.COMMON_STARTERS:
        attribute = kin_attribute(match["kin"], name)
        text = f"the user's {match['kin'].lower()} is called {name}"
        yield Draft(attribute=attribute, label=name, is_sole=True, text=text)


def _my_pet(match: re.Match[str]) -> Iterator[Draft]:
    text = f"the user's {match['pet'].lower()} is called {match['name']}"
    attribute = f"pet:{match['pet'].lower()}"
    yield Draft(attribute=attribute, label=match["name"], is_sole=True, text=text)


def _my_thing(match: re.Match[str]) -> Iterator[Draft]:
    value = value_in(match["x"])
    if is_worth(value):
        yield Draft(attribute=f"possession:{match['thing'].lower()}", label=value, is_sole=True)


def _my_pet_died(match: re.Match[str]) -> Iterator[Draft]:
    yield Draft(attribute=f"pet:{match['pet'].lower()}", label="died", relation=_ENDED)


POSSESSIVES = _compiled(
    (
        (rf"(?i:my (?:full |first |given )?name(?: is|['’]s)) (?P<x>{NAME})", _name),
        (
            rf"(?i:(?:you can |please |just |people |everyone |friends )*calls? me) (?P<x>{NAME})",
            _name,
        ),
        (r"(?i:my birthday is) (?i:on |in )?(?P<x>(?=.*(?:\d|[A-Z])).+)", _verbatim("birthday")),
        (r"(?i:my home ?town is) (?P<x>.+)", _sole("origin")),
        (
            r"(?i:my (?:new |current )?(?:home|house|apartment|flat|place|studio)"
            r" is (?:now )?(?:located )?in) (?P<x>.+)",
            _place(),
        ),
        (
            r"(?i:my (?:all[- ]time )?(?:favou?rite|preferred))(?P<kind>(?: [\w-]+){1,3}?)"
            r" (?:is|are|has always been) (?P<x>.+)",
            _my_favourite,
        ),
        (r"(?i:my (?:main |biggest )?hobb(?:y|ies) (?:is|are|include)) (?P<x>.+)", _hobbies),
        (
            rf"(?i:my (?:job|profession|occupation) is) (?:an? |the )?"
            rf"(?P<x>(?:[\w-]+ ){{0,3}}?{words.JOBS})\b",
            _verbatim("occupation"),
        ),
        (r"(?i:my employer is) (?P<x>.+)", _sole("employer")),
        (rf"(?i:my) (?P<thing>{words.THINGS}) is (?P<x>an? .+)", _my_thing),
        (
            r"(?i:my) (?P<what>(?:[\w'-]+ )?(?:appointment|interview|exam|flight|surgery|checkup"
            r"|wedding)) is (?P<x>(?:on|at|in|next|tomorrow)\b.+)",
            _appointment,
        ),
        (
            r"(?i:my (?:work |personal )?(?:e-?mail|phone|mobile|telephone)(?: number"
            r"| address)? is)"
            r" (?P<x>(?=.*(?:@|\d)).+)",
            _verbatim("contact:user"),
        ),
        (
            r"(?i:my (?:native|first|mother) (?:language|tongue) is) (?P<x>.+)",
            _speaks,
        ),
        (r"(?i:my (?:dream|goal|ambition|aim)) is (?:to )?(?P<x>.+)", _aim("goal")),
        (
            rf"(?i:my) {KIN_ADJECTIVES}(?P<kin>{KIN})(?:['’]s name is|,? (?:is )?(?:called|named),?"
            rf"| is(?= [A-Z])|,)? (?P<name>(?!I\b){NAME})",
            _my_person,
        ),
        (
            rf"(?i:my|our) (?:[a-z]+ )?(?P<pet>{words.PETS})(?:['’]s name is"
            rf"|,? (?:is )?(?:called|named),?| is(?= [A-Z])|,)? (?P<name>(?!I\b){NAME})",
            _my_pet,
        ),
        (
            rf"(?i:my|our) (?:[a-z]+ )?(?P<pet>{words.PETS})(?:,? [A-Z]\w+,?)? (?:has )?"
            r"(?:just |recently )?(?:died|passed away)",
            _my_pet_died,
        ),
    )
)
"""Rules on a clause that begins with what is the user's."""
