"""What counts as a secret, what does not, and that nothing of one is left."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from pipeline.extracting.redaction import (
    MARK,
    KnownSecrets,
    holds_secret,
    redact,
    redact_json,
    secrets_in,
)

SECRETS = {
    "my key is sk-test-0000000000000000000000 and I like tea": "sk-test-0000000000000000000000",
    "use AKIAIOSFODNN7EXAMPLE please": "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0123456789_abc": "github_pat_11ABCDEFG0123456789_abc",
    "glpat-abcdefghij0123456789": "glpat-abcdefghij0123456789",
    "ats_Ab3dE5gH7jK9mN1pQ3sT5vX7zB9dF1hJ3lN5pR7tV9x is ours": (
        "ats_Ab3dE5gH7jK9mN1pQ3sT5vX7zB9dF1hJ3lN5pR7tV9x"
    ),
    "xoxb-1234567890-abcdefghij": "xoxb-1234567890-abcdefghij",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-d1": (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-d1"
    ),
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- bye": "MIIE",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn": "b3Blbn",
    "Authorization: Bearer abcDEF123456ghijkl789": "abcDEF123456ghijkl789",
    "mongodb://root:pa55w0rd@db:27017/x": "pa55w0rd",
    "postgres://:onlypass@db/x": "onlypass",
    "https://x.y/?token=abcd1234efgh5678&b=1": "abcd1234efgh5678",
    "export OPENAI_API_KEY=abc123abc123abc123": "abc123abc123abc123",
    "password: hunter2": "hunter2",
    "Password = correct-horse": "correct-horse",
    "db_password='s3cret!x'": "s3cret!x",
    "my password is swordfish": "swordfish",
    "my password is Swordfish.": "Swordfish",
    'The password is "open sesame"': "open sesame",
    "password hunter2": "hunter2",
    "the wifi password at home is Sommer2024!": "Sommer2024",
    "passphrase: correct horse battery staple": "correct horse battery staple",
    "my recovery phrase is apple river stone moon": "apple river stone moon",
    "Das Passwort für das WLAN ist geheim99.": "geheim99",
    "mi contraseña es tormenta1": "tormenta1",
    "мой пароль: тайна": "тайна",
    "我的密码是abc123，喜欢喝茶": "abc123",
    "密码：qwerty": "qwerty",
    "パスワードは abc123 です": "abc123",
    "My PIN number is 4711.": "4711",
    "验证码是 123456": "123456",
    "api key: 9f8a7b6c5d4e": "9f8a7b6c5d4e",
    "token 9f8a7b6c5d4e3f2a1b0c": "9f8a7b6c5d4e3f2a1b0c",
    "card 4111 1111 1111 1111 ok": "4111 1111 1111 1111",
    "4111-1111-1111-1111": "4111-1111-1111-1111",
    "amex 378282246310005": "378282246310005",
}

HARMLESS = (
    "commit 3f5a9c0e1d2b4a6f8e7c9d0b1a2f3e4d5c6b7a89",
    "the key commit is 3f5a9c0e1d2b4a6f8e7c9d0b1a2f3e4d5c6b7a89",
    "key id is 550e8400-e29b-41d4-a716-446655440000",
    "token 550e8400-e29b-41d4-a716-446655440000",
    "order 12345678-1234-4123-8123-123456789012",
    "ISBN 978-3-16-148410-0",
    "call +49 170 1234567 89012",
    "+1 (555) 010-1234",
    "my number is 0170 1234567",
    "1700000000000",
    "4111 1111 1111 1112",
    "the password is wrong",
    "I forgot my password",
    "Password: required",
    "Password reset emails are slow",
    "my password manager is Bitwarden",
    "密码是什么",
    "我的密码是什么意思",
    "密码是我的生日",
    "the key is to listen carefully",
    "key: C major",
    "my key takeaway is that 2024 was great",
    "keyboard is mechanical75keys",
    "monkey: gorilla2024xyz",
    "a token of 2024 appreciation",
    "the secret is out",
    "the secret garden was written in 1911",
    "our secret to success since 1999 is work",
    "sk-learn-is-a-really-long-package-name",
    "pin 3 notes on Monday 12:00",
    "the password was changed in 2024",
    "http://localhost:8080/a@b",
    MARK,
    f"my password is {MARK}.",
)


@pytest.mark.parametrize(("text", "secret"), SECRETS.items())
def test_a_secret_is_taken_out_and_the_rest_stays(text: str, secret: str) -> None:
    """By its shape, or by what it is called, in several languages."""
    clean, count = redact(text)

    assert secret not in clean
    assert (count, clean.count(MARK)) == (1, 1)
    assert holds_secret(text)
    assert holds_secret(clean)
    before, _, after = clean.partition(MARK)
    assert text.startswith(before)
    assert text.endswith(after)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_survives_to_the_letter(text: str) -> None:
    """Hashes, ids, book and phone numbers, and talk about secrets."""
    assert redact(text) == (text, 0)


@pytest.mark.parametrize("text", SECRETS)
def test_the_rules_hold_in_the_middle_of_a_long_text(text: str) -> None:
    """What is looked at only near a hint is found wherever the hint is."""
    padding = "The quick brown fox is 42 years old. İ" * 200
    clean, count = redact(f"{padding}\n{text}\n{padding}")

    assert count == 1
    assert clean.startswith(padding)
    assert clean.endswith(padding) or "BEGIN" in text  # a key block without an end has no end


def test_json_loses_secrets_in_values_and_keys() -> None:
    """At any depth; what is no text stays what it is."""
    value: JsonValue = {
        "sk-test-0000000000000000000000": [1, None, True, 2.5],
        "a": {"b": ["card 4111 1111 1111 1111", "tea"]},
    }

    assert redact_json(value) == (
        {MARK: [1, None, True, 2.5], "a": {"b": [f"card {MARK}", "tea"]}},
        2,
    )


def test_json_says_a_secret_by_its_key() -> None:
    """Even one that looks like a word."""
    assert redact_json({"password": "cat", "name": "cat"}) == (
        {"password": MARK, "name": "cat"},
        1,
    )


def test_a_secret_said_once_is_known_everywhere() -> None:
    """A model repeats a value by itself; a word that merely contains it stays."""
    value: JsonValue = [
        "The password is tangerine7.",
        "tangerine7",
        "tangerine77",
        {"label": "tangerine7"},
    ]

    assert redact_json(value) == (
        [f"The password is {MARK}.", MARK, "tangerine77", {"label": MARK}],
        3,
    )
    assert redact("it is tangerine7!", known=KnownSecrets(["tangerine7"])) == (f"it is {MARK}!", 1)


def test_a_password_that_is_a_common_word_is_not_hunted_elsewhere() -> None:
    """Else half a conversation would be taken out."""
    assert secrets_in("password: cat") == frozenset()
    assert redact_json(["password: cat", "I have a cat"])[0] == [
        f"password: {MARK}",
        "I have a cat",
    ]


def test_keys_that_become_the_same_stay_two() -> None:
    """Nothing is lost with them."""
    clean, _ = redact_json({"AKIAIOSFODNN7EXAMPLE": 1, "AKIAIOSFODNN7EXAMPLF": 2})

    assert clean == {MARK: 1, f"{MARK} 2": 2}


def test_our_own_prompts_and_documents_hold_no_secret() -> None:
    """The prompt must pass its own rules."""
    prompt = Path("pipeline/extracting/prompts/v1/extract.md").read_text(encoding="utf-8")

    assert redact(prompt.replace(MARK, ""))[1] == 0
