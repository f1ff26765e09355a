"""Tokens: whose they are, until when, and everything that is none."""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime
from typing import Any

import jwt
import pytest

from pipeline.access.tokens import LIFE, SIGNING_PURPOSE, SKEW, Tokens
from pipeline.errors import UnauthenticatedError
from pipeline.ids import OpaqueIds
from schemas.access import Role, ServiceAccount

NOW_MS = 1_800_000_000_000
LIFE_MS = int(LIFE.total_seconds() * 1000)
SKEW_MS = int(SKEW.total_seconds() * 1000)
KEY = OpaqueIds(b"i" * 32).derived_key(SIGNING_PURPOSE)
TOKENS = Tokens(KEY)
ACCOUNT = ServiceAccount(
    account_id="sa_1",
    name="assistant",
    project_id="alpha",
    role=Role.AGENT,
    created_at=datetime(2026, 3, 1, tzinfo=UTC),
)
GOOD = TOKENS.make(ACCOUNT, "s1", token_id="t1", now_ms=NOW_MS)
CLAIMS: dict[str, Any] = jwt.decode(GOOD, options={"verify_signature": False})


def signed(claims: dict[str, Any], headers: dict[str, Any] | None = None) -> str:
    return jwt.encode(claims, KEY, algorithm="HS256", headers=headers)


def part(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def by_hand(header: dict[str, str], digest: str) -> str:
    said = f"{part(header)}.{part(CLAIMS)}"
    made = hmac.new(KEY, said.encode(), digest).digest()
    return f"{said}.{urlsafe_b64encode(made).rstrip(b'=').decode()}"


def test_a_token_says_who_has_it_for_an_hour_to_the_second() -> None:
    claims = TOKENS.read(GOOD, now_ms=NOW_MS)

    assert (claims.account_id, claims.secret_id) == ("sa_1", "s1")
    assert (claims.project_id, claims.token_id) == ("alpha", "t1")
    assert TOKENS.read(GOOD, now_ms=NOW_MS + LIFE_MS - 1) == claims
    for late in (0, 1, LIFE_MS):
        with pytest.raises(UnauthenticatedError, match="expired"):
            TOKENS.read(GOOD, now_ms=NOW_MS + LIFE_MS + late)


def test_a_clock_may_be_behind_by_a_minute() -> None:
    assert TOKENS.read(GOOD, now_ms=NOW_MS - SKEW_MS).account_id == "sa_1"
    with pytest.raises(UnauthenticatedError, match="clocks disagree"):
        TOKENS.read(GOOD, now_ms=NOW_MS - SKEW_MS - 1)


def test_a_token_of_another_installation_or_another_purpose_is_none() -> None:
    for other in (
        OpaqueIds(b"j" * 32).derived_key(SIGNING_PURPOSE),
        OpaqueIds(b"i" * 32).derived_key("something else"),
        b"i" * 32,
    ):
        with pytest.raises(UnauthenticatedError):
            TOKENS.read(
                Tokens(other).make(ACCOUNT, "s1", token_id="t1", now_ms=NOW_MS), now_ms=NOW_MS
            )


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "Zürich",
        GOOD + "a",
        GOOD + ".",
        GOOD.rpartition(".")[0] + ".",
        GOOD.replace(".", "", 1),
        GOOD * 100,
        part({"alg": "none", "typ": "JWT"}) + "." + GOOD.split(".")[1] + ".",
        part({"alg": "none", "typ": "JWT"}) + "." + ".".join(GOOD.split(".")[1:]),
        by_hand({"alg": "HS512", "typ": "JWT"}, "sha512"),
        by_hand({"typ": "JWT", "alg": "HS256"}, "sha512"),
        signed(CLAIMS, headers={"kid": "../../etc/passwd"}),
        signed(CLAIMS, headers={"jku": "https://example.org"}),
        signed(CLAIMS | {"iss": "somebody"}),
        signed(CLAIMS | {"aud": "something"}),
        *(signed({k: v for k, v in CLAIMS.items() if k != name}) for name in CLAIMS),
        signed(CLAIMS | {"exp": "never"}),
        signed(CLAIMS | {"sub": 7}),
    ],
)
def test_whatever_is_not_as_this_server_makes_it_is_refused(token: str) -> None:
    with pytest.raises(UnauthenticatedError) as refused:
        TOKENS.read(token, now_ms=NOW_MS)

    assert not token or token not in str(refused.value)


def test_a_project_in_the_token_can_not_be_exchanged() -> None:
    head, body, signature = GOOD.split(".")
    said = json.loads(urlsafe_b64decode(body + "=="))
    forged = f"{head}.{part(said | {'prj': 'beta'})}.{signature}"

    with pytest.raises(UnauthenticatedError):
        TOKENS.read(forged, now_ms=NOW_MS)


def test_a_project_may_be_called_anything_that_is_a_name() -> None:
    long = ACCOUNT.model_copy(update={"project_id": "\N{FAMILY}" * 256})
    token = TOKENS.make(long, "s1", token_id="t1", now_ms=NOW_MS)

    assert TOKENS.read(token, now_ms=NOW_MS).project_id == long.project_id
