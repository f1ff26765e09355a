"""What a predicate is about: the value cut from its words, and the topic it belongs to."""

import re

from compose.offline import rules_english_words as words

_VALUE_END = re.compile(
    r"""(?ix)
    \s*[;(!?.:]\s | \s*[(] | \s+(?:because|since|so|but|although|though|which|who|where|when
      |while|if
      |especially|particularly|such\ as|like|including|as\ (?:it|they|i|well|a)|that|whenever|after
      |confirmed
      |before|until|even|once|every|each)\b
    | ,?\s+(?:and|or)\s+(?:i|it|my|we|they|he|she|am|is|have|has|would|will|was|were|want|find|think
      |feel|hope|often|always|usually|sometimes|recently|also|the|that|even|then|can|go|spend)\b
    | ,\s+(?:they|it|he|she|that|we|i)(?:['’]|\b)
    | \s+(?:these\ days|now|right\ now|at\ the\ moment|currently|lately|recently|too|a\ lot
      |very\ much
      |so\ much|the\ most|the\ best|more\ than|most|best|better\ than|over\ (?!\d)|any\ ?more
        |instead
      |again|for\ (?:now|the\ moment|many|a\ (?:few|while|long)|over|more|about|almost|\d|two|three
      |four|five|six|ten|years|it|me)|in\ my\ (?:free|spare)\ time|in\ general|as\ well|to\ relax
      |for\ fun|with\ (?:my|friends)|rather\ than|today|yesterday|last|this\ (?:week|year|month)
      |whose|and\ not|not|in\ (?:19|20)\d\d)\b
    """
)
_DETERMINER = re.compile(
    r"(?i)^(?:(?:all kinds of|all sorts of|a lot of|lots of|many|different(?: types of)?|various"
    r"|some|any|a|an|the|my|their|own|very|really|quite|drinking|eating|having|listening to"
    r"|watching|to drink|to eat|a cup of|cups of|a bit of)\s+)+"
)
POINTING = re.compile(
    r"""(?ix)
    ^(?:two|three|four|it|this|that|these|those|them|they|he|she|him|her|his|hers|you|your|yours|their|what|how|when
      |where|who|why|both|all|such|one|ones|everything|something|anything|nothing|everyone|there|here
      |some|its|being|having|me|us|myself|themselves|to|not|so|more|most|much|very|and|or|with|talking
      |chatting|hearing|sharing|communicating|spending|doing|going|trying|getting|making|meeting
      |seeing|reaching|a\ few|each\ other|him|then|also|too|seem(?:s)?|is|are)\b
    | \b(?:you|your|yours|it|this|these|those|them|there|here|i|me|he|she|him)\b
    """
)
_NICE_DEFINITES = re.compile(
    r"[Tt]he (?:(?:colou?r|smell of|sound of|taste of) \w|(?:outdoors|beach|sea|ocean|mountains"
    r"|countryside|cold|rain|summer|winter|autumn|spring|piano|guitar|violin|snow|sun|city|theatre"
    r"|theater|cinema|opera|dark|heat|desert|forest)$|[A-Z])"
)


def value_in(raw: str, *, listing: bool = False) -> str:
    """Return the value at the head of `raw`; `listing` lets it go on after a comma."""
    text = raw.strip()
    if not listing:
        text = text.split(",")[0]
    end = _VALUE_END.search(" " + text + " ")
    if end is not None:
        text = (" " + text)[: end.start()]
    text = text.strip(" ,.!?;:-")
    return (text[1:-1] if re.fullmatch(r"[\"'“‘].*[\"'”’]", text) else text)[:160]


def topic_of(value: str) -> str:
    """Return one or two plain words for what a value is about."""
    text = _DETERMINER.sub("", value.lower())
    text = re.split(
        r"\s+(?:of|about|by|from|in|on|at|with|for|over|to|than|and|or|through|because|during)\b|,",
        text,
    )[0]
    tokens = re.findall(r"[\w'’-]+", text)
    if len(tokens) > 2 and tokens[0].endswith("ing"):  # noqa: PLR2004 - a topic is two words
        return " ".join(tokens[:2])
    return " ".join(tokens[-2:]) or "general"


def category_of(value: str) -> str:
    """Return the field a preference lies in, so that another choice lands beside it."""
    tokens = re.findall(r"[\w-]+", value.lower())
    for category, members in words.CATEGORIES.items():
        if any(token in members for token in tokens):
            return category
    return singular(topic_of(value).split()[-1])


def singular(noun: str) -> str:
    """Return the noun for one of them, roughly: it only has to come out the same each time."""
    if noun.endswith("ies"):
        return noun[:-3] + "y"
    return noun if noun.endswith("ss") else noun.removesuffix("s")


def members_of(raw: str) -> list[str]:
    """Return the members of an enumeration, or the whole where it may be none."""
    whole = value_in(raw, listing=True)
    parts = [
        part.strip()
        for part in re.split(r",\s*(?:and\s+|or\s+)?|\s+and\s+|\s+or\s+|\s*&\s*", whole)
        if part.strip()
    ]
    if len(parts) < 2 or re.search(r"(?i)rock and roll|salt and|mac and|black and white", whole):  # noqa: PLR2004
        return [whole]
    first = [part.split()[0].lower() for part in parts]
    counts = [len(part.split()) for part in parts]
    known = words.HOBBIES.union(*words.CATEGORIES.values())
    are_peers = (
        all(word.endswith("ing") for word in first)
        or all(count == 1 for count in counts)
        or all(part.lower() in known or len(part.split()) > 1 for part in parts)
    )
    has_tail = any(re.search(r"\b(?:about|of|by|from|with|for|to)\b", part) for part in parts)
    if not are_peers or (has_tail and not all(word.endswith("ing") for word in first)):
        return [whole]
    return parts[:6]


def is_worth(value: str) -> bool:
    """Return whether a value names something, and does not point at what was said before."""
    if not value or len(value) < 2 or len(value.split()) > 14:  # noqa: PLR2004
        return False
    if value.lower().startswith("the "):
        return _NICE_DEFINITES.match(value) is not None
    return POINTING.search(value) is None


def is_place(value: str) -> bool:
    """Return whether somebody can live there."""
    return bool(
        re.match(r"[A-Z]|\d+ [A-Z]", value)
        or re.search(
            r"(?i)\b(?:city|town|village|countryside|suburbs?|apartment|flat|house|island|coast"
            r"|mountains?|neighbou?rhood|downtown|farm|north|south|east|west|country|area|district"
            r"|building|dorm|hostel|studio|cottage|cabin|campus)\b",
            value,
        )
    )


def activity_of(value: str) -> str | None:
    """Return the hobby a value names, if it is one."""
    tokens = value.lower().removeprefix("to ").split()
    if not tokens:
        return None
    if tokens[0] in {"play", "playing"} and len(tokens) > 1:
        known = [token for token in tokens[1:] if token in words.HOBBIES]
        return known[0] if known else topic_of(" ".join(tokens[1:]))
    if tokens[0] in {"reading", "watching", "collecting", "listening"}:
        return " ".join(topic_of(value).split()[:2]) if tokens[0] == "collecting" else tokens[0]
    return tokens[0] if tokens[0] in words.HOBBIES and len(tokens) <= 4 else None  # noqa: PLR2004
