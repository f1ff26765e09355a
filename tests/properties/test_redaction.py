"""Laws of redaction, for any text; and that no text makes it slow."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.redaction import MARK, redact, redact_json

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
