"""Who may sign in: service accounts, their roles and what is stored of their secrets."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from schemas.base import Frozen
from schemas.identity import Name


class Role(StrEnum):
    """What an account is for; see `pipeline/access/rights.py` for what each may do."""

    AGENT = "agent"
    OPERATOR = "operator"
    ADMIN = "admin"


AccountName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""How operators call an account: up to 64 letters, digits, dots, dashes and underscores."""

SECRETS = 2
"""How many secrets of an account are valid at once: the one in use, and the one that follows."""


class StoredSecret(Frozen):
    """What is kept of a secret: never the secret."""

    secret_id: str
    """Tokens name it, so that they end with it."""
    digest: str
    """A keyed hash, in hexadecimal."""
    created_at: datetime


class ServiceAccount(Frozen):
    """A program that signs in, pinned to one project, and to one organization if it has one."""

    account_id: str
    """The client id."""
    name: AccountName
    """Unique, also among the revoked: it stays in the audit trail."""
    project_id: Name
    org_id: Name | None = None
    role: Role
    secrets: Annotated[tuple[StoredSecret, ...], Field(max_length=SECRETS)] = ()
    """The older first."""
    created_at: datetime
    revoked_at: datetime | None = None
    rev: int = 0
