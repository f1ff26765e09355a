"""Events the user tells of."""

import re
from datetime import datetime

from compose.offline import rules_chinese, rules_english
from compose.offline.rules_dates import day_of
from compose.offline.rules_items import Episode, Grounded
from compose.offline.rules_text import Sentence

_WHEN = re.compile(
    r"""(?ix)
    \b(?:yesterday|last\ (?:night|week|weekend|month|year|summer|winter|spring|fall|autumn|\w+day)
      |(?:this|today's)\ (?:morning|afternoon|evening|weekend) | today | the\ other\ day
      |(?:a|one|two|three|four|five|\d+)\ (?:day|week|month|year)s?\ ago | on\ (?:mon|tues|wednes
        |thurs|fri|satur|sun)day
      |over\ the\ (?:weekend|holidays))\b
    """
)
_HAPPENED = re.compile(
    r"""(?ix)
    ^(?:\w+ly\ |just\ |finally\ |all\ |both\ )*(?P<verb>went|visited|attended|watched|met
      |celebrated|participated|hiked|climbed|bought
      |saw|cooked|made|finished|completed|won|got\ (?:promoted|married|engaged|accepted|hired
        |lost|sick)|ran|lost|passed
      |graduated|performed|moved|joined|hosted|organi[sz]ed|travell?ed|flew|drove|broke|adopted
      |started|baked|painted|submitted|published|presented|interviewed|took\ (?:my|our|the|a|part)
      |had\ (?:a|an|my|our)\ (?:\w+\ )?(?:interview|party|picnic|meeting|dinner|accident|fight
        |argument|wedding|concert|exam|surgery|date|barbecue|presentation))\b
    """
)
_CHINESE_WHEN = re.compile(
    r"昨[天晚]|前天|今[天早晚]|上周|上个?(?:周末|月|星期|礼拜)|去年|周末|前几天|前段时间|\d+[天周]前"
)
_CHINESE_HAPPENED = re.compile(
    r"(?:去了?|参加了?|看了|看到了?|参观了|游览了|拜访了|见了|见到了|买了|吃了|做了|完成了|通过了|获得了|赢了"
    r"|爬了|跑了|办了|举办了|庆祝了|收到了|搬了|入职了|学了|拍了|听了)"
)
_WITH = re.compile(
    r"\bwith (?:my |our |some |a few |an? )?(?P<who>(?:(?:\w+ )?(?:friends?|colleagues?|family|kids"
    r"|children|parents|cousins?|sisters?|brothers?|wife|husband|partner|boyfriend|girlfriend|mom|mum"
    r"|dad|mother|father|son|daughter|team|neighbou?rs?)\b|[A-Z]\w+)(?: (?:and )?[A-Z]\w+)*)"
)
_CHINESE_WITH = re.compile(
    r"(?:和|跟|与)(?P<who>(?:我的?)?(?:几个|一个|一位|好)?[^，,。]{1,8}?)(?:一起|去|一同|们一起)"
)
_TITLE_WORDS = 8
_TITLE_CHARACTERS = 20
_LEAST_WEIGHT = 3


def episode_in(seq: int, said_at: datetime | None, sentence: Sentence) -> Episode | None:
    """Return the event a sentence tells of, if it tells of one."""
    if sentence.asks or not sentence.is_clean:
        return None
    if sentence.is_chinese:
        return _in_chinese(seq, said_at, sentence.text)
    return _in_english(seq, said_at, sentence)


def _in_english(seq: int, said_at: datetime | None, sentence: Sentence) -> Episode | None:
    text = sentence.text
    predicate = rules_english.told_by_user(sentence)
    when = _WHEN.search(text)
    if predicate is None or when is None or _HAPPENED.match(predicate) is None:
        return None
    if re.match(r"(?:\w+ ){1,3}?(?:it|that|this|them|one|a few more|another)\b", predicate):
        return None
    summary = rules_english.sentence_about_user(predicate)
    if re.search(r"(?i)\b(?:you|your)\b", summary):
        return None
    company = _WITH.search(text)
    day = day_of(text, said_at)
    bare = re.sub(r"(?i)\s*\b(?:yesterday|today|last (?:night|week|weekend))\b", "", predicate)
    title = " ".join(
        re.split(r"[,;]| [-–—]| and (?:it|we|i|the)\b| because ", bare)[0].split()[:_TITLE_WORDS]
    )
    return Episode(
        title=(title[:1].upper() + title[1:]).strip(" .!"),
        summary=summary if day is None else f"{summary[:-1]} ({day.isoformat()}).",
        participants=("user",) if company is None else ("user", company["who"].strip()),
        day=None if day is None else day.isoformat(),
        weight=_LEAST_WEIGHT + min(len(text.split()), 30) // 5 + (company is not None),
        grounds=Grounded(seq=seq, quote=text),
    )


def _in_chinese(seq: int, said_at: datetime | None, text: str) -> Episode | None:
    if _CHINESE_WHEN.search(text) is None or _CHINESE_HAPPENED.search(text) is None:
        return None
    told = rules_chinese.told_by_user(text)
    if told is None or re.search(
        r"打算|计划|准备|想要?[去看买]|希望|过得|的是|经常|每[天周]", told
    ):
        return None
    company = _CHINESE_WITH.search(told)
    day = day_of(text, said_at)
    summary = rules_chinese.sentence_about_user(told)
    first = re.split(r"[，,；;]", told.removeprefix("我").lstrip("，, "))[0]
    title = re.sub(r"^(?:今天|昨天|昨晚|前天|我|上周末?|周末)+", "", first)
    return Episode(
        title=(title or first).strip(" ，。！")[:_TITLE_CHARACTERS],
        summary=summary if day is None else f"{summary.rstrip('。')}（{day.isoformat()}）。",
        participants=("user",) if company is None else ("user", company["who"].strip()),
        day=None if day is None else day.isoformat(),
        weight=_LEAST_WEIGHT + min(len(told), 60) // 15 + (company is not None),
        grounds=Grounded(seq=seq, quote=text),
    )
