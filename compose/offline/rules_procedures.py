"""Ways of doing something, where the user lays out the steps."""

import re
from collections.abc import Iterator

from compose.offline.rules_items import Grounded, Procedure
from compose.offline.rules_text import BARRED

_LIST_LINE = (
    r"[ \t]*(?:\d{1,2}[.)、．]|[-*•]|第[一二三四五六七八九十]步[：:,，]?|[①-⑩])[ \t]*(?P<step>\S.*)"
)
_ANY_LINE = _LIST_LINE.replace("(?P<step>", "(?:")
_LISTED = re.compile(
    rf"(?m)^(?P<head>[^\n]{{3,160}})\n{{1,3}}(?P<steps>(?:{_ANY_LINE}(?:\n{{1,3}}|\Z)){{2,20}})"
)
_INLINE_LIST = re.compile(
    r"(?P<head>[^\n.!?。]{3,120}?[:：])[ \t]*"
    r"(?P<steps>1[.)、][ \t]*\S.*?(?:[;；,，.。]?[ \t]*[2-9][.)、][ \t]*\S.*?)+)(?=\n|$)"
)
_STEP = re.compile(rf"(?m)^{_LIST_LINE}$")
_HOW_TO = re.compile(
    r"""(?ix)
    \bhow\s+(?:to|i|we)\b | \bto\s+\w+ | \bsteps?\b | \bprocedure\b | \brecipe\b
      | \bthe\ way\ (?:i|we)\b
    | \b(?:process|checklist|routine|workflow|runbook|instructions)\b
    | 步骤 | 流程 | 做法 | 方法 | 怎么 | 如何 | 操作 | 菜谱
    """
)
_ASKING = re.compile(
    r"(?i)\b(?:can|could|would|will|please|should) (?:you|i)\b|\bplease\b(?! remember"
    r"| note| save| keep)"
    r"|\bhelp me\b|[?？]\s*$|请(?!记)|帮我|能不能|可以.{0,4}吗"
)
_ENGLISH = re.compile(
    r"""(?ix)
    (?P<quote>
      (?: (?: (?:here(?:'s|\ is)\ )? (?:how|the\ way)\ (?:i|we|to)\ (?P<how>[^,.:\n]{3,80}) [,.:]
            | (?P<trigger>(?:when(?:ever)?|before|after|if)\ (?:i|we|you|the|a|an)\ [^,.:\n]{3,80}),
            | \bto\ (?P<goal>[^,.:\n]{3,80}) [,:] ) \s*
      )
      (?P<steps> (?:(?:i|we|you|always|just)\ )* first,?\ .{3,400}?
        (?:[,.;]\s*|\s)(?:and\ )?(?:then|next|after\ that|finally|lastly)\b [^\n]{3,400}? )
    ) (?=[.!]\s+(?!(?:then|next|after\ that|finally|lastly)\b)|[.!]?\s*(?:\n|$))
    """
)
_CHINESE = re.compile(
    r"""(?x)
    (?P<quote>
      (?P<goal>[^\n。！？，,：:]{2,40}?)
      (?:的?(?:步骤|流程|方法|做法)(?:是|如下)?|时|的时候|之前|前|，?要|需要)? \s* [：:，,]? \s*
      (?P<steps> (?:我们?|先)? (?:首先|第一步|先) [^\n]{2,200}?
        (?:然后|接着|再|第二步|之后) [^\n]{2,200}? )
    ) (?= [。！]?\s*(?:\n|$) | [。！](?!\s*(?:然后|接着|再|最后|第)) )
    """
)
_ENGLISH_STEP = re.compile(
    r"(?i)(?:^|[,.;]\s*|\s+)(?:and\s+)?(?:first(?:ly)?|then|next|after that|finally|lastly)\b,?\s*"
)
_CHINESE_STEP = re.compile(
    r"[，,；;。]?\s*(?:首先|第[一二三四五六七八九十]步|然后|接着|之后|最后|先|再)[，,：:]?"
)
_FIRST = re.compile(r"(?i)\bfirst\b|先|第一步")
_FEWEST_STEPS = 2
_LONGEST = 1900


def procedures_in(seq: int, content: str, text: str) -> list[Procedure]:
    """Return the procedures a user's turn lays out, in order.

    Args:
        seq: The turn's number.
        content: What was said, for quoting.
        text: The same as the rules may read it.
    """
    found: list[Procedure] = []
    for pattern in (_LISTED, _INLINE_LIST):
        for match in () if found else pattern.finditer(text):
            procedure = _listed(seq, content, text, match)
            if procedure is not None:
                found.append(procedure)
    return found or list(_narrations(seq, content, text))


def _narrations(seq: int, content: str, text: str) -> Iterator[Procedure]:
    for line in re.finditer(r"[^\n]+", text):
        if line.end() - line.start() > _LONGEST or _FIRST.search(line.group()) is None:
            continue
        for pattern in (_ENGLISH, _CHINESE):
            for match in pattern.finditer(text, line.start(), line.end()):
                procedure = _narrated(seq, content, text, match)
                if procedure is not None:
                    yield procedure


def _listed(seq: int, content: str, text: str, match: re.Match[str]) -> Procedure | None:
    head, listing = match["head"].strip(), match["steps"]
    if match.re is _LISTED:
        steps = [step["step"] for step in _STEP.finditer(listing)]
    else:
        steps = re.split(r"\s*[;；,，.。]?\s*\b\d[.)、]\s*", listing)
    is_usable = head.endswith((":", "：")) or re.search(r"(?i)\bsteps\b|步骤|流程", head)
    if not is_usable or _HOW_TO.search(head) is None or _ASKING.search(head):
        return None
    name = _name(head)
    return _procedure(seq, content, text, match.span(), name=name, steps=steps)


def _narrated(seq: int, content: str, text: str, match: re.Match[str]) -> Procedure | None:
    groups = match.groupdict()
    name = groups.get("goal") or groups.get("how") or groups.get("trigger") or ""
    splitter = _ENGLISH_STEP if match.re is _ENGLISH else _CHINESE_STEP
    steps = splitter.split(groups["steps"] or "")
    if _ASKING.search(match.group()):
        return None
    triggers = (groups["trigger"].strip(),) if groups.get("trigger") else ()
    if match.re is _CHINESE and not _HOW_TO.search(match.group()) and not _is_chinese_goal(match):
        return None
    span = match.span("quote")
    return _procedure(seq, content, text, span, name=_name(name), steps=steps, triggers=triggers)


def _is_chinese_goal(match: re.Match[str]) -> bool:
    """Return whether what comes before the steps names a doing, and tells of no past event."""
    goal = match["goal"]
    return not re.search(r"[我他她]|今天|昨天|上周|去年|了$", goal) and "了" not in match["steps"]


def _name(head: str) -> str:
    text = head.strip(" :：.,，")
    text = re.sub(
        r"(?i)^.*?\b(?:here(?:'s| is| are)|this is|these are|remember|note"
        r"|save)\b[,:]?\s*(?:that\s+)?",
        "",
        text,
    )
    text = re.sub(
        r"(?i)^(?:the\s+|our\s+|my\s+)?(?:steps?|procedure|process|recipe|way|checklist|routine|workflow"
        r"|instructions|runbook)\s+(?:to|for|of|i|we)\s+",
        "",
        text,
    )
    text = re.sub(r"(?i)^(?:how\s+(?:to|i|we)|to|the way (?:i|we))\s+", "", text)
    text = re.sub(r"^(?:请?记住|记一下)[，,：:]?", "", text)
    text = re.sub(r"的?(?:步骤|流程|操作方法|做法|方法)(?:如下|是)?$", "", text)
    return text.strip(" :：,，")[:200]


def _procedure(
    seq: int,
    content: str,
    text: str,
    span: tuple[int, int],
    *,
    name: str,
    steps: list[str],
    triggers: tuple[str, ...] = (),
) -> Procedure | None:
    start, end = span
    quote = content[start:end].strip()
    cleaned = [step.strip(" \t\n,.;，。；:：") for step in steps]
    cleaned = [
        step
        for step in cleaned
        if re.search(r"\w", step) and not re.fullmatch(r"(?i)i|we|you|always|just", step)
    ]
    is_usable = (
        len(name) > 1
        and len(cleaned) >= _FEWEST_STEPS
        and len(quote) <= _LONGEST
        and BARRED not in text[start:end]
        and quote != ""
    )
    if not is_usable:
        return None
    tools = tuple(dict.fromkeys(re.findall(r"`([\w./-]+)[^`]*`", quote)))
    return Procedure(
        name=name,
        steps=tuple(step[:400] for step in cleaned),
        triggers=triggers,
        tools=tools[:20],
        grounds=Grounded(seq=seq, quote=quote),
    )
