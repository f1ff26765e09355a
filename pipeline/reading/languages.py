"""Languages: which one a text is in, and what a word of it comes down to."""

import itertools
import threading
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import bm25s.stopwords
import Stemmer

DEFAULT: Final = "english"
"""What a text in Latin letters is taken for that has no telling word."""

_lists: Any = bm25s.stopwords
_stemming: Any = Stemmer

_FUNCTION_WORDS: Final[Mapping[str, Iterable[str]]] = {
    DEFAULT: _lists.STOPWORDS_EN_PLUS,
    "german": _lists.STOPWORDS_GERMAN,
    "french": _lists.STOPWORDS_FRENCH,
    "spanish": _lists.STOPWORDS_SPANISH,
    "portuguese": _lists.STOPWORDS_PORTUGUESE,
    "italian": _lists.STOPWORDS_ITALIAN,
    "dutch": _lists.STOPWORDS_DUTCH,
    "swedish": _lists.STOPWORDS_SWEDISH,
    "danish": _lists.STOPWORDS_DANISH,
    "norwegian": _lists.STOPWORDS_NORWEGIAN,
    "turkish": _lists.STOPWORDS_TURKISH,
}
_TOLD_BY: Final[defaultdict[str, list[str]]] = defaultdict(list)
for _language, _words in _FUNCTION_WORDS.items():
    for _word in set(_words):
        _TOLD_BY[_word].append(_language)
_OF_SCRIPT: Final = {
    "CYRILLIC": "russian",
    "GREEK": "greek",
    "ARABIC": "arabic",
    "DEVANAGARI": "hindi",
    "ARMENIAN": "armenian",
    "TAMIL": "tamil",
}
"""Scripts whose words are all taken for one language's."""
_ACCENTS: Final = dict.fromkeys(range(0x300, 0x370))


class _Stemmers(threading.local):
    """A stemmer is for one thread."""

    def __init__(self) -> None:
        self.of: dict[str, Callable[[str], str]] = {}


_stemmers: Final = _Stemmers()


def language_of(words: Iterable[str]) -> str:
    """Return the language whose function words are most in a text in Latin letters.

    One such word alone tells nothing: "ya" is no Spanish yet.

    Args:
        words: Its words in lower case, with their accents.
    """
    hits = Counter(itertools.chain.from_iterable(_TOLD_BY.get(word, ()) for word in words))
    best = max(_FUNCTION_WORDS, key=lambda language: hits[language])
    return best if hits[best] > 1 else DEFAULT


def stem(word: str, language: str) -> str:
    """Return what a word in lower case comes down to, without accents.

    Stems of different languages are different, even of the same letters, where only the text told
    the language: "die" in German is no English.

    Args:
        word: Inflected or not.
        language: What it is taken for where its letters are Latin; others tell it themselves.
    """
    script = _script(word[0])
    own = ""
    if script != "LATIN":
        if script not in _OF_SCRIPT:
            return _bare(word)
        language = _OF_SCRIPT[script]
    elif language == DEFAULT:
        # Elsewhere an accent may be part of the ending; here it is only a way to write a word.
        word = _bare(word)
    else:
        own = f" {language}"
    stemmed = _stemmers.of.get(language)
    if stemmed is None:
        stemmed = _stemmers.of[language] = _stemming.Stemmer(language).stemWord
    return _bare(stemmed(word)) + own


def _bare(word: str) -> str:
    if word.isascii():
        return word
    bare = unicodedata.normalize("NFD", word).translate(_ACCENTS)
    return unicodedata.normalize("NFC", bare)


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
