"""Sentences that say what a word means."""

import re
from collections.abc import Iterator, Sequence

from compose.offline.rules_items import Grounded, Term
from compose.offline.rules_text import Sentence
from schemas.memory import Relation

# ruff: noqa: E501 - a pattern is one line of a table

_QUOTE = "[\"'“”‘’「」『』]"
_TERM = rf"(?:(?i:an?|the) )?{_QUOTE}?(?P<term>[\w][\w /.+&-]{{0,40}}?){_QUOTE}?"
_MEANING = r"(?P<meaning>[^;]{3,300})"

_ENGLISH: Sequence[tuple[re.Pattern[str], bool]] = tuple(
    (re.compile(pattern), is_plain)
    for pattern, is_plain in (
        (rf"(?i)\bby {_TERM},? (?:we|i|people here) mean {_MEANING}", True),
        (rf"(?i)\bwhen (?:i|we) (?:say|talk about|write) {_TERM},? (?:i|we) mean {_MEANING}", True),
        (rf"(?i)\b{_TERM} (?:is short for|is an abbreviation (?:of|for)) {_MEANING}", True),
        (rf"\b(?P<term>[A-Z][A-Za-z]{{0,3}}[A-Z0-9]{{1,6}}) stands for {_MEANING}", True),
        (rf"(?i)\b{_TERM} is (?:our|the team's|my) (?:\w+ )?(?:word|term|name|shorthand|jargon|nickname) for {_MEANING}", True),
        (rf"(?i)\b(?:in|at|for) (?:our|my|this) \w+(?: \w+)?,? {_TERM} (?:means|refers to) {_MEANING}", True),
        (rf"(?i)\b(?:the (?:word|term) ){_TERM} (?:means|refers to) {_MEANING}", True),
        (rf"(?:^|[,:] ?|\b(?i:here|for us|note that|remember that|fyi),? ){_TERM} (?:means|refers to) {_MEANING}", False),
    )
)  # fmt: skip
_WE_CALL = re.compile(
    rf"(?i)\bwe (?:call|refer to) (?P<meaning>[\w ,'’-]{{3,120}}?) (?:as )?"
    rf"(?:{_QUOTE}(?P<quoted>[\w -]{{1,40}}){_QUOTE}|(?:an? |the )(?P<term>[\w-]{{2,30}}))[.!]?$"
)
_CHINESE = (
    re.compile(rf"(?:^|[，,：:]){_QUOTE}?(?P<term>[\w /.+-]{{1,20}}?){_QUOTE}?(?:是指|指的是|的意思是|意思是|的全称是|是(?P<short>.{{2,20}})的(?:简称|缩写)){_QUOTE}?(?P<meaning>[^；;]{{0,200}})"),
    re.compile(rf"(?:我们|我)[^，,。]{{0,6}}?(?:所说|说|讲)的{_QUOTE}?(?P<term>[\w /.+-]{{1,20}}?){_QUOTE}?(?:，|,)?(?:就)?(?:是指|指的是|是)(?P<meaning>[^；;]{{2,200}})"),
    re.compile(rf"我们(?:把|管)(?P<meaning>[^，,；;]{{2,60}}?)(?:叫做|叫作|称为|称作|叫){_QUOTE}?(?P<term>[\w /.+-]{{1,20}}?){_QUOTE}?[。！.]?$"),
)  # fmt: skip
_NO_TERM = re.compile(
    r"(?i)^(?:it|that|this|which|what|who|he|she|they|you|i|we|there|these|those|so|and|but|also|or"
    r"|friendship|family|love|life|music|art|nature|happiness|success|home|work|everything|silence"
    r"|freedom|money|time|travel\w*|reading|writing|being|having|by|no|yes|(?:it|he|she|they|that) .*"
    r"|这|那|它|这个|那个|他|她|我|你|重点|重要的|关键)$"
)
_NO_MEANING = re.compile(
    r"(?i)^(?:a lot|a great deal|so much|the world|everything|much|nothing|something|well|that\b|i\b"
    r"|we\b|you\b|he\b|she\b|they\b|it\b|more than|to me|very|no more)"
)
_DOMAINS: Sequence[tuple[str, re.Pattern[str]]] = (
    ("software", re.compile(r"(?i)\b(?:deploy\w*|server|code|release|api|bug|build|branch|repo\w*|test|database|pipeline|commit|app|cluster|backlog|sprint|merge|frontend|backend|service)\b|代码|部署|服务器|上线|数据库|发布|接口|分支|程序")),
    ("medicine", re.compile(r"(?i)\b(?:patient|doctor|dose|diagnosis|clinic\w*|ward|hospital|surgery|nurse)\b|病人|患者|医院|手术|药")),
    ("finance", re.compile(r"(?i)\b(?:revenue|budget|invoice|profit|margin|account\w*|tax|fund|fiscal|payroll)\b|预算|发票|利润|税|财务|收入")),
    ("law", re.compile(r"(?i)\b(?:contract|court|legal|clause|lawyer|lawsuit)\b|合同|法院|法律|律师")),
    ("music", re.compile(r"(?i)\b(?:song|chord|rehearsal|band|gig|melody|concert)\b|歌|乐队|排练|和弦")),
    ("cooking", re.compile(r"(?i)\b(?:cook|dough|bake|kitchen|recipe|simmer|oven)\b|烹饪|厨房|面团|菜")),
    ("sport", re.compile(r"(?i)\b(?:match|team sport|goal|training|player|coach|race|marathon)\b|比赛|训练|球队")),
    ("education", re.compile(r"(?i)\b(?:students?|class|lesson|exam|school|course)\b|学生|课程|考试|学校")),
    ("team", re.compile(r"(?i)\b(?:our team|at work|our company|in our|meeting|we call|we mean|colleagues?)\b|我们团队|公司|开会|会议|我们组|我们部门")),
)  # fmt: skip
_CORRECTING = re.compile(
    r"(?i)\b(?:actually|correction|i was wrong|i misspoke)\b|^no,|不对|说错|更正"
)


def terms_in(seq: int, sentence: Sentence) -> Iterator[Term]:
    """Yield the term a sentence explains, if it explains one."""
    text = sentence.text
    if sentence.asks or not sentence.is_clean:
        return
    found = _in_chinese(text) if sentence.is_chinese else _in_english(text)
    if found is None:
        return
    term, meaning = found
    yield Term(
        domain=_domain(text),
        term=term,
        definition=meaning,
        relation=Relation.CORRECTS if _CORRECTING.search(text) else Relation.ADDS,
        grounds=Grounded(seq=seq, quote=text),
    )


def _in_english(text: str) -> tuple[str, str] | None:
    for pattern, is_plain in _ENGLISH:
        match = pattern.search(text)
        if match is None:
            continue
        found = _checked(match["term"], match["meaning"])
        if found is not None and (is_plain or _is_marked(text, match)):
            return found
    call = _WE_CALL.search(text)
    return None if call is None else _checked(call["quoted"] or call["term"], call["meaning"])


def _is_marked(text: str, match: re.Match[str]) -> bool:
    """Return whether a word is set off as a term: quoted, or with a capital it need not have."""
    before = text[: match.start("term")]
    term = match["term"]
    is_quoted = before.endswith(tuple("\"'“‘"))
    has_capital = any(char.isupper() for char in term[1:]) or (before != "" and term[0].isupper())
    defines = re.match(r"(?i)(?:an?|the|any|every|when|one of|our) ", match["meaning"]) is not None
    return is_quoted or has_capital or (defines and len(term.split()) <= 2 and term[0].islower())  # noqa: PLR2004


def _in_chinese(text: str) -> tuple[str, str] | None:
    for pattern in _CHINESE:
        match = pattern.search(text)
        if match is not None:
            short = match.groupdict().get("short")
            return _checked(match["term"], short or match["meaning"])
    return None


def _checked(term: str, meaning: str) -> tuple[str, str] | None:
    name = re.sub(r"(?i)^(?:the|a|an|also|and|so|actually|correction|no) ", "", term.strip())
    said = meaning.strip(' .。!！,，"“”')
    is_usable = name and said and not _NO_TERM.match(name) and not _NO_MEANING.match(said)
    return (name, said) if is_usable and len(name.split()) <= 4 else None  # noqa: PLR2004


def _domain(text: str) -> str:
    for domain, pattern in _DOMAINS:
        if pattern.search(text):
            return domain
    return "general"
