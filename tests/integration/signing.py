"""Service accounts for tests, and the tokens they get over HTTP."""

import secrets
from dataclasses import dataclass

import httpx

from consumers.wiring import Installation
from pipeline.access.accounts import AccountDesk
from pipeline.access.rights import HASHING_PURPOSE, Secrets
from pipeline.stores.accounts import MongoAccounts
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.access import Role

SIGN_IN = "/api/v1/oauth/token"
GRANT = {"grant_type": "client_credentials"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What an operator hands to an agent."""

    name: str
    client_id: str
    secret: str


def desk(parts: Installation) -> AccountDesk:
    """Return what the commands work with."""
    return AccountDesk(
        accounts=MongoAccounts(parts.database),
        actions=MongoOperatorActions(parts.database),
        secrets=Secrets(parts.ids.derived_key(HASHING_PURPOSE)),
        server_time=parts.server_time,
        random=secrets.token_bytes,
        by="test",
    )


async def account(
    parts: Installation, name: str, project: str, role: Role = Role.AGENT, org: str | None = None
) -> Credentials:
    """Make an account."""
    made = await desk(parts).create(name, project_id=project, role=role, org_id=org)
    return Credentials(name=name, client_id=made.account.account_id, secret=made.secret)


async def sign_in(http: httpx.AsyncClient, client_id: str, secret: str) -> httpx.Response:
    """Ask for a token as the published client's documentation shows it."""
    return await http.post(SIGN_IN, data=GRANT, auth=(client_id, secret))


async def token_of(http: httpx.AsyncClient, credentials: Credentials) -> str:
    """Return a token."""
    answer = await sign_in(http, credentials.client_id, credentials.secret)
    assert answer.status_code == 200, answer.text
    return answer.json()["access_token"]


def bearing(token: str) -> dict[str, str]:
    """Return the header that a client sends."""
    return {"Authorization": f"Bearer {token}"}
