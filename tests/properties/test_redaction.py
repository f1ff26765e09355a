"""Laws of redaction, for any text; and that no text makes it slow."""

import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.extracting.redaction import MARK, KnownSecrets, redact, redact_json

KEY = "sk-test-0000000000000000000000"
PIECES = (
    *("password", "my ", "key", "token", " is ", ": ", "=", "secret", "passphrase", "pin", "密码"),
    *("是", "eyJ", ".", "sk-", "bearer ", "://", "a:b@", "4111 1111 1111 1111", " ", "\n", '"'),
    *("[", "]", MARK, KEY, "abc123", "A", "-----BEGIN PRIVATE KEY-----", "-", "0", "İ", "commit"),
)
texts = st.text() | st.lists(st.sampled_from(PIECES)).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@given(texts)
def test_what_was_removed_is_not_removed_again(text: str) -> None:
    """Redacting is idempotent."""
    clean, _ = redact(text)

    assert redact(clean) == (clean, 0)


@given(texts)
def test_only_marks_are_added(text: str) -> None:
    """Everything else is a part of the text, in its order."""
    clean, count = redact(text)
    kept = [re.escape(piece) for piece in clean.split(MARK)]

    assert re.fullmatch(".+".join(kept), text, re.DOTALL)
    assert clean.count(MARK) == text.count(MARK) + count or MARK in text
    assert (count == 0) == (clean == text)


@given(texts, texts)
def test_a_key_is_found_between_any_words(before: str, after: str) -> None:
    """Whatever surrounds it, as long as it stands by itself."""
    clean, count = redact(f"{before}\n{KEY}\n{after}")

    assert f"\n{KEY}\n" not in clean
    assert count >= 1


@given(st.lists(st.text(min_size=1)), texts)
def test_every_known_secret_is_found_where_it_stands_alone(known: list[str], text: str) -> None:
    """The places are those that looking for one secret after the other finds."""
    padded = "".join(f" {secret} {text}" for secret in known)

    found = set(KnownSecrets(known).spans(padded))

    covered = {place for start, stop in found for place in range(start, stop)}
    assert {padded[start:stop] for start, stop in found} <= set(known)
    for secret in known:
        for start in range(len(padded) - len(secret) + 1):
            stands = padded.startswith(secret, start) and _is_alone(padded, start, len(secret))
            assert not stands or {*range(start, start + len(secret))} <= covered


def _is_alone(text: str, start: int, length: int) -> bool:
    edges = (text[max(0, start - 1) : start + 1], text[start + length - 1 : start + length + 1])
    return not any(len(edge) == 2 and edge.isascii() and edge.isalnum() for edge in edges)


@given(values)
def test_json_keeps_its_shape(value: object) -> None:
    """Lists keep their length, objects the number of their keys, other values themselves."""
    clean, count = redact_json(value)  # type: ignore[arg-type]

    assert _shape(clean) == _shape(value)
    assert count or clean == value


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return [_shape(inner) for inner in value.values()]  # type: ignore[union-attr]
    if isinstance(value, list):
        return [_shape(inner) for inner in value]  # type: ignore[union-attr]
    return "text" if isinstance(value, str) else value


MEGABYTE = 1_000_000
LONG = 200_000
UNITS = (
    *("a", "1 ", "my ", "password ", "password" + " " * 39, "my password is ", "key ", "key: "),
    *("token is ", "eyJ", "eyJaaaaaaaa.", "sk-", "-----BEGIN PRIVATE KEY-----", "a://b:", 'key "'),
    *("4111 ", "passphrase is ", "密码是", "[", "bearer ", "SG.aaaaaaaaaaaaaaaa."),
)


@pytest.mark.parametrize("unit", UNITS)
def test_no_text_takes_more_than_linear_time(unit: str) -> None:
    """What looks like the beginning of a match, over and over.

    It measures no time: with a rule that is quadratic in it, this test would not end today.
    """
    text = unit * (LONG // len(unit))

    clean, _ = redact(text + f"\n{KEY}")

    assert KEY not in clean


def test_one_long_run_of_spaces_is_linear_too() -> None:
    """A megabyte of them, behind words that wait for a value."""
    text = "password key token passphrase pin" + " " * MEGABYTE

    assert redact(text) == (text, 0)


def lines_run(work: Callable[[], object]) -> int:
    """Return how many lines of Python a piece of work runs."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_many_known_secrets_are_no_more_work_than_their_texts() -> None:
    """Twice as many texts, each with a secret of its own that is known in all: twice the work."""

    def redacting(number: int) -> int:
        value = [f"password: s3cret-{place:05}" for place in range(number)]
        return lines_run(lambda: redact_json(value))  # type: ignore[arg-type]

    assert redacting(400) < 2.2 * redacting(200)


class Counted(str):
    """A text that counts how much of it is looked at by slices."""

    looked_at = 0

    def __getitem__(self, key: Any) -> str:
        found = super().__getitem__(key)
        Counted.looked_at += len(found)
        return found


def test_one_text_is_looked_at_once_for_all_known_secrets() -> None:
    """However many they are."""
    text = "nothing to see here, " * 500
    looked_at: list[int] = []
    for number in (10, 1000):
        known = KnownSecrets(f"s3cret-{place:05}" for place in range(number))
        Counted.looked_at = 0
        assert list(known.spans(Counted(text))) == []
        looked_at.append(Counted.looked_at)

    assert looked_at[0] == looked_at[1]


@pytest.mark.parametrize("before", range(32_700, 32_800, 3))
def test_a_secret_between_two_stretches_is_found_whole(before: int) -> None:
    """Long texts are looked at piece by piece."""
    for secret in ("4111 1111 1111 1111", KEY, "my password is hunter2"):
        text = "." * before + f" {secret} " + "." * 40_000

        clean, count = redact(text)

        assert count == 1
        assert clean.replace("my password is ", "") == "." * before + f" {MARK} " + "." * 40_000
