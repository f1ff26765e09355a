"""The model of a campaign: how it answers depends on whose session it is asked about."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from tests import scripted_endpoint as scripted
from tests.faults.campaign import PASSING, Mood, Talk
from tests.scripted_endpoint import Json, Reply

PLACE: Final = re.compile(r"plumtree (\d+)\.\d+")
"""What a turn of a talk says of itself: the talk's number first."""
RETRY_AFTER_SECONDS: Final = 0.4
UNSAID: Final = "I moved to Mars."
"""What a wrong item claims that somebody said."""

_SPOILED: Final[dict[Mood, Callable[[Reply], Reply]]] = {
    Mood.RATE_LIMITED: lambda _: scripted.status(429, retry_after=RETRY_AFTER_SECONDS),
    Mood.SERVER_ERROR: lambda _: scripted.status(500, message="Quentin of Vladivostok"),
    Mood.OVERLOADED: lambda _: scripted.status(529),
    Mood.WEB_PAGE: lambda _: scripted.html("<html>Quentin plumtree</html>"),
    Mood.NO_CHOICES: lambda _: scripted.completes([]),
    Mood.RESET: lambda _: scripted.resets(),
    Mood.HUNG_UP: lambda _: scripted.hangs_up(),
    Mood.CUT_BODY: lambda good: scripted.truncated(good, sent_bytes=len(good.body) // 2),
    Mood.STALLED: lambda _: scripted.hangs(),
    Mood.SLOW: lambda good: scripted.delayed(good, timedelta(seconds=1)),
    Mood.ONCE_INVALID: lambda _: scripted.calls_tool('{"semantic": "plumtree'),
}
_REFUSALS: Final[dict[Mood, Reply]] = {
    Mood.REFUSED: scripted.refuses("Quentin, I cannot speak of Vladivostok"),
    Mood.FILTERED: scripted.filtered(),
    Mood.INVALID: scripted.calls_tool('{"semantic": "plumtree Quentin"'),
    Mood.EMPTY: scripted.says(None),
    Mood.BAD_REQUEST: scripted.status(400, message="plumtree zebrafish"),
    Mood.NOTHING: scripted.answers(),
}


class MoodyModel:
    """The responder of a scripted endpoint."""

    def __init__(self, talks: Sequence[Talk]) -> None:
        self._talks = {talk.number: talk for talk in talks}
        self._spoiled = Counter[int]()
        self.asked = Counter[int]()
        """How many requests came, by the number of the talk."""
        self.has_calmed = False
        """Whether passing moods have passed."""
        self.outage: Reply | None = None
        """What everybody gets, whatever is asked."""

    def __call__(self, request: Json) -> Reply:
        turns = turns_of(request)
        talk = self._talks[_number(turns[0]["content"])]
        self.asked[talk.number] += 1
        if self.outage is not None:
            return self.outage
        good = _answer(talk.mood, turns)
        is_spoiled = talk.mood in PASSING and self._spoiled[talk.number] < talk.fails
        if is_spoiled and not self.has_calmed:
            self._spoiled[talk.number] += 1
            return _SPOILED[talk.mood](good)
        return good


def turns_of(request: Json) -> list[Any]:
    """Return the turns that a request, or a re-ask of it, asks to be extracted from."""
    texts = [each["content"] for each in request["messages"] if each["role"] == "user"]
    text: str = next(each for each in texts if each and each.rstrip().endswith("</turns>"))
    lines = text.rpartition("<turns>")[2].partition("</turns>")[0].splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def _number(content: str) -> int:
    place = PLACE.search(content)
    assert place is not None, "a turn of no talk"
    return int(place[1])


def _answer(mood: Mood, turns: Sequence[Any]) -> Reply:
    if mood in _REFUSALS:
        return _REFUSALS[mood]
    if mood is Mood.TOO_LONG and len(turns) > 1:
        return scripted.cut_off()
    items = [_home(turn["seq"], turn["content"].partition(";")[0]) for turn in turns]
    if mood is Mood.WRONG_QUOTE:
        items.append(_home(turns[0]["seq"], UNSAID))
    return scripted.answers(semantic=items, summary="Where the user lives.")


def _home(seq: int, text: str) -> Json:
    return {
        "attribute": "home",
        "label": text,
        "text": text,
        "relation": "replaces",
        "evidence": [seq],
        "quote": text,
    }
