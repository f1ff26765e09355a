"""What day a sentence speaks of, where saying so is easy."""

import re
from datetime import date, datetime, timedelta

_NUMBERS = {
    "a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "一": 1, "两": 2, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "几": 0,
}  # fmt: skip
_NEAR = (
    (re.compile(r"(?i)\bday before yesterday\b|前天|前日|\bvorgestern\b|\banteayer\b"), -2),
    (re.compile(r"(?i)\byesterday\b|\blast night\b|昨[天日晚]|\bgestern\b|\bayer\b|\bontem\b"), -1),
    (re.compile(r"(?i)\btomorrow\b|明[天日晚]|\bmorgen\b|\bmañana\b|\bamanhã\b"), 1),
    (re.compile(r"(?i)\btoday\b|\bthis (?:morning|afternoon|evening)\b|今[天日早晚]"
        r"|\bheute\b|\bhoy\b"), 0),
)  # fmt: skip
_AGO = re.compile(r"(?i)\b(\d{1,3}|a|one|two|three|four|five|six|seven) (day|week)s? ago\b")
_AGO_CHINESE = re.compile(r"(\d{1,3}|[一二两三四五六七])个?(天|周|星期|礼拜)前")
_LAST_WEEKEND = re.compile(r"(?i)\b(?:last|this past) weekend\b|上周末|上个周末|上星期[六天日]")
_LAST_WEEK = re.compile(r"(?i)\blast week\b|上周|上个?星期|上个?礼拜")
_SINCE_YEAR = re.compile(r"(?i)\b(?:since|in)\s+((?:19|20)\d{2})\b|((?:19|20)\d{2})年")
_DAY = re.compile(r"\b((?:19|20)\d{2})-(\d{2})-(\d{2})\b")
_WEEK = timedelta(days=7)
_SATURDAY = 5


def day_of(text: str, said_at: datetime | None) -> date | None:
    """Return the day `text` names, or names relative to when it was said; `None` if unsure."""
    if (written := _DAY.search(text)) is not None:
        return _date(*(int(part) for part in written.groups()))
    if said_at is not None and (relative := _relative(text, said_at.date())) is not None:
        return relative
    if (year := _SINCE_YEAR.search(text)) is not None:
        return _date(int(year.group(1) or year.group(2)), 1, 1)
    return None


def _relative(text: str, today: date) -> date | None:
    for pattern, days in _NEAR:
        if pattern.search(text):
            return today + timedelta(days=days)
    ago = _AGO.search(text) or _AGO_CHINESE.search(text)
    if ago is not None:
        number = _NUMBERS.get(ago.group(1).lower()) or int(ago.group(1))
        return today - number * (timedelta(days=1) if ago.group(2) in {"day", "天"} else _WEEK)
    if _LAST_WEEKEND.search(text):
        return today - timedelta(days=(today.weekday() - _SATURDAY) % 7 or 7)
    if _LAST_WEEK.search(text):
        return today - _WEEK
    return None


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
