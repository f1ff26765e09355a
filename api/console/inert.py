"""Text that others wrote, made harmless for a page: what a terminal or a reader obeys is shown.

A browser's escaping keeps markup from being markup. It does not keep U+202E from turning a line
round, nor an escape sequence from working where somebody pastes what the page showed.
"""

import unicodedata
from typing import Any, Final

from markupsafe import Markup

_KEPT: Final = frozenset("\n\t")
_JOINERS: Final = frozenset("\u200c\u200d")
"""Words of Persian and Hindi need them, and so do many emoji; they turn nothing round."""
_PICTURES: Final = 0x2400
_DELETE: Final = 0x7F
_BOM: Final = "\ufeff"


def inert(text: str) -> str:
    """Return a text whose control and direction characters are visible marks.

    C0 controls become their pictures (U+2400 on), all others `[U+202E]`. Idempotent.
    """
    if text.isprintable() or all(map(_is_harmless, text)):
        return text
    return "".join(each if _is_harmless(each) else _mark(each) for each in text)


def shown(value: Any) -> Any:
    """Return a value as a template may put it on a page; markup of our own as it is."""
    return inert(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _is_harmless(character: str) -> bool:
    if character in _KEPT or character in _JOINERS:
        return True
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _mark(character: str) -> str:
    code = ord(character)
    if code < ord(" "):
        return chr(_PICTURES + code)
    return "\u2421" if code == _DELETE else f"[U+{code:04X}]"
