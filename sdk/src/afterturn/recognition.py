"""Which turns of a request were said before: pure functions of what was said and recorded.

A request says its whole history again, or as much of it as its runtime kept. Two things tell what
is new in it. The *log* of a conversation, in the memory of this process, has every turn that was
recorded; a history is laid along it as a subsequence, so that windows and edits match as far as
they go. And every turn has a *key*, a digest of its text, of the turns said just before it and of
how often just that was said before; the memory server stores a key once. Keys are made of the
request alone, so every process gives the same turn the same key.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import blake2b
from typing import Final

from afterturn.turns import DIGEST_BYTES

BEFORE: Final = 3
"""How many turns before a turn are part of its key. An edit is forgotten that many turns later,
and a window that slides soon gives the keys that the whole history would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A turn of a request, as recognition sees it."""

    digest: bytes
    """Of what is said."""
    is_answer: bool
    """Whether the assistant says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A turn of the log."""

    digest: bytes
    """Of what was said."""
    place: bytes
    """Of what was said, and of what was said just before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """A turn that was not said before."""

    index: int
    """Which one of the request."""
    entry: Entry
    """What the log gets."""
    key: str
    """What the memory server is to store only once."""


def fresh(
    log: Sequence[Entry], heard: Sequence[Heard], *, answers: int = 0, root: str = ""
) -> list[Fresh]:
    """Return what of a request is new, in order.

    Args:
        log: What was recorded of the conversation, in the order of recording.
        heard: The turns of the request, and behind them those of its answer.
        answers: How many of them are the answer's.
        root: What the vendor keeps and the request only names: then nothing in the request is
            history, and keys alone decide.
    """
    asked = heard[: len(heard) - answers]
    history = max((index + 1 for index, turn in enumerate(asked) if turn.is_answer), default=0)
    matches = {} if root else _aligned(_digests(log), _digests(heard[:history]))
    cut_off = log[: matches.get(0, 0)]
    places = _places([_digest((root.encode("utf-8", "surrogatepass"),)), *_digests(cut_off)], heard)
    if not root:
        _add_again(matches, log, places, history)
    counts = Counter(entry.place for entry in cut_off)
    found: list[Fresh] = []
    for index, (turn, place) in enumerate(zip(heard, places, strict=True)):
        at = matches.get(index)
        if at is not None:
            counts[log[at].place] += 1
            continue
        entry = Entry(digest=turn.digest, place=place)
        found.append(Fresh(index=index, entry=entry, key=_key(place, counts[place])))
        counts[place] += 1
    return found


def _places(before: Sequence[bytes], heard: Sequence[Heard]) -> list[bytes]:
    """Return the digest of each turn and those before it, in the request or cut off from it."""
    digests = [*before[-BEFORE:], *_digests(heard)]
    begin = len(digests) - len(heard)
    return [_digest(digests[max(0, end - BEFORE) : end + 1]) for end in range(begin, len(digests))]


def _add_again(
    matches: dict[int, int], log: Sequence[Entry], places: Sequence[bytes], history: int
) -> None:
    """Add to the matches what stands behind the last answer of the history.

    That is new, but for a request that is sent again: there a turn matches only what was said
    after the same, later than all that matched.
    """
    after = max(matches.values(), default=-1)
    for index in range(history, len(places)):
        again = (at for at in range(after + 1, len(log)) if log[at].place == places[index])
        at = next(again, None)
        if at is not None:
            matches[index] = after = at


def _aligned(log: Sequence[bytes], said: Sequence[bytes]) -> dict[int, int]:
    """Return where in the log turns of a history are, by their index; both grow together.

    It is at the log's beginning, at its end, or in pieces.
    """
    length = len(said)
    if said == log[:length]:
        return {index: index for index in range(length)}
    if said == log[-length:]:
        return {index: len(log) - length + index for index in range(length)}
    prefix = 0
    while prefix < min(len(log), length) and log[prefix] == said[prefix]:
        prefix += 1
    matches = {index: index for index in range(prefix)}
    matcher = SequenceMatcher(None, log[prefix:], said[prefix:], autojunk=False)
    for block in matcher.get_matching_blocks():
        for step in range(block.size):
            matches[prefix + block.b + step] = prefix + block.a + step
    return matches


def _digests(turns: Sequence[Entry] | Sequence[Heard]) -> list[bytes]:
    return [turn.digest for turn in turns]


def _digest(parts: Iterable[bytes]) -> bytes:
    return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def _key(place: bytes, count: int) -> str:
    return "sdk1-" + _digest((place, count.to_bytes(8, "big"))).hex()
