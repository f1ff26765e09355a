"""Whether words were really said, and in which turn: the same letters, however they were typed."""

import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Final

from pipeline.extracting.recalled import without_recalled
from pipeline.extracting.redaction import MARK, redact
from schemas.turn import Role, Turn


class Found(StrEnum):
    """Where a quote is in a turn."""

    SAID = "said"
    IN_SECRET = "in_secret"  # noqa: S105 (a place)
    """Only together with a secret."""
    RECALLED = "recalled"
    """Only in what `build_context` had put there."""
    NOWHERE = "nowhere"


class SaidTurn:
    """A turn as quotes are looked for in it; each reading of it is made once, when needed."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    @property
    def role(self) -> Role:
        """Who speaks."""
        return self._turn.role

    @property
    def effective_at(self) -> datetime:
        """When it counts as said."""
        return self._turn.effective_at

    def find(self, quote: str) -> Found:
        """Return where a normalized quote is."""
        if _stands_in(quote, self._clean):
            return Found.IN_SECRET if _MARK in quote else Found.SAID
        if _stands_in(quote, self._own):
            return Found.IN_SECRET
        return Found.RECALLED if _stands_in(quote, self._whole) else Found.NOWHERE

    @cached_property
    def _clean(self) -> str:
        return normalized(redact(without_recalled(self._turn.content))[0])

    @cached_property
    def _own(self) -> str:
        return normalized(without_recalled(self._turn.content))

    @cached_property
    def _whole(self) -> str:
        return normalized(self._turn.content)


_UNIFIED: Final = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛`´ʼ＇", "'"),
        **dict.fromkeys("“”„‟«»「」『』＂", '"'),
        **dict.fromkeys("‐‑‒–—―−－", "-"),
    }
)
_EDGES: Final = " \"'.,;:!?…。，、；：！？-"


def normalized(text: str) -> str:
    """Return a text as quotes are compared: typography, case, spacing and forms aside."""
    folded = unicodedata.normalize("NFKC", text).translate(_UNIFIED).casefold()
    if not folded.isascii():
        folded = "".join(
            character for character in folded if unicodedata.category(character) != "Cf"
        )
    return " ".join(folded.split())


def normalized_quote(text: str) -> str:
    """Return a quote for `SaidTurn.find`: without the punctuation around it; empty if it has none.

    A quote of no letter and no digit says nothing, and is empty too.
    """
    quote = normalized(text).strip(_EDGES)
    return quote if any(character.isalnum() for character in quote) else ""


_MARK: Final = normalized(MARK)


def _stands_in(quote: str, text: str) -> bool:
    """Return whether a quote is in a text, not beginning or ending inside a word."""
    return bool(quote) and any(
        not (_is_joint(text, place) or _is_joint(text, place + len(quote)))
        for place in _places(quote, text)
    )


def _places(quote: str, text: str) -> Iterator[int]:
    place = text.find(quote)
    while place >= 0:
        yield place
        place = text.find(quote, place + 1)


def _is_joint(text: str, place: int) -> bool:
    """Return whether a place lies within a word, in scripts that put spaces between words."""
    return 0 < place < len(text) and all(
        character.isalnum() and character < _UNSPACED for character in text[place - 1 : place + 1]
    )


_UNSPACED: Final = "\u0e00"
"""From Thai on, most scripts run their words together, or change letters at their ends."""


_WORDS: Final = re.compile(r"\w+")
_GREETING_WORD: Final = re.compile(
    r"""(?x)
    (?: hi | hello | hey | hiya | yo | dear | good | morning | afternoon | evening | night | day
      | bye | goodbye | see | you | later | soon | tomorrow | take | care | thanks? | thx | cheers
      | so | very | much | a | lot | for | your | the | help | ok | okay | please | welcome
      | there | again | all | everyone | nice | to | meet | how | are
      | hallo | moin | servus | guten | gute | tag | morgen | abend | nacht | danke | schön | sehr
      | vielen | dank | tschüss | bis | bald | bitte
      | hola | buenos | buenas | días | tardes | noches | gracias | muchas | adiós | hasta | luego
      | bonjour | bonsoir | salut | merci | beaucoup | au | revoir
      | ciao | buongiorno | buonasera | grazie | mille | arrivederci
      | olá | oi | bom | boa | dia | tarde | noite | obrigad[oa] | muito | tchau
      | привет | здравствуйте? | добрый | доброе | день | утро | вечер | спасибо | большое | пока
      | 你好 | 您好 | 大家好 | 早上好 | 下午好 | 晚上好 | 晚安 | 好的 | 嗨
      | 谢谢 | 謝謝 | 谢谢你 | 多谢 | 再见 | 再見 | 拜拜
      | こんにちは | おはよう | ありがとう | さようなら | 안녕하세요 | 감사합니다
    )
    """
)


def is_greeting(quote: str) -> bool:
    """Return whether a normalized quote only greets, thanks or takes leave."""
    return all(_GREETING_WORD.fullmatch(word) for word in _WORDS.findall(quote))
