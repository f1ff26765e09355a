"""Who may do what, and what a service account's secrets are worth: decisions without any state.

A secret has 256 random bits, so nobody finds it by trying, however fast its hash is: a keyed
SHA-256 serves, and costs a server under attack nothing. What a slow hash protects is guessable.
"""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from datetime import datetime
from enum import StrEnum
from typing import Final

from pipeline.errors import AccountError
from schemas.access import SECRETS, Role, ServiceAccount, StoredSecret

SECRET_BYTES: Final = 32
MARK: Final = "ats_"
"""By which people and scanners of secrets know what they have found."""
HASHING_PURPOSE: Final = "secrets of service accounts"
"""What the key of `Secrets` is derived for."""


class Permission(StrEnum):
    """What can be allowed."""

    MEMORY = "memory"
    """Recording, saving, reading and forgetting for the users of the account's project."""
    METRICS = "metrics"
    """What the process counts, of all projects together."""
    OPERATE = "operate"
    """At the console: what waits and what failed, and to put it right; nobody's words."""
    WORDS = "words"
    """At the console: what was said in the account's project, and what is remembered of it."""


_ALLOWED: Final = {
    Role.AGENT: {Permission.MEMORY},
    Role.OPERATOR: {Permission.METRICS, Permission.OPERATE},
    Role.ADMIN: set(Permission),
}


def may(role: Role, permission: Permission) -> bool:
    """Return whether a role includes a permission: operators need nobody's words to operate."""
    return permission in _ALLOWED[role]


class Secrets:
    """Makes and checks the secrets of one installation.

    Args:
        key: Derived from the installation's for `HASHING_PURPOSE`.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def digest(self, account_id: str, secret: str) -> str:
        """Return what is stored of a secret: one account's tells nothing of another's."""
        said = f"{account_id}\n{secret}".encode(errors="surrogatepass")
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()

    def matching(self, account: ServiceAccount | None, secret: str) -> StoredSecret | None:
        """Return the valid secret that was sent, if it is one.

        Takes as long whether the account is known, has one secret or two, and whichever it is.
        """
        known = account is not None and account.revoked_at is None
        stored = account.secrets if account is not None and known else ()
        sent = self.digest(account.account_id if account is not None else "", secret)
        found: StoredSecret | None = None
        for place in range(SECRETS):
            held = stored[place] if place < len(stored) else None
            is_it = hmac.compare_digest(held.digest if held is not None else "0" * len(sent), sent)
            found = held if is_it else found
        return found


def secret_from(random: bytes) -> str:
    """Return a secret made of random bytes, to be shown once.

    Raises:
        ValueError: They are too few.
    """
    if len(random) < SECRET_BYTES:
        raise ValueError(f"a secret is made of at least {SECRET_BYTES} random bytes")
    return MARK + urlsafe_b64encode(random).rstrip(b"=").decode()


def rotated(account: ServiceAccount, secret: StoredSecret) -> ServiceAccount:
    """Return an account with another valid secret beside the one it has.

    Raises:
        AccountError: It is revoked, or has two.
    """
    _check_not_revoked(account)
    if len(account.secrets) >= SECRETS:
        raise AccountError(
            f"{account.name} has {SECRETS} valid secrets: end the older one first, once nobody uses"
            f" it, with `./afterturn accounts retire {account.name}`"
        )
    return _changed(account, secrets=(*account.secrets, secret))


def retired(account: ServiceAccount) -> ServiceAccount:
    """Return an account without the older of its two secrets.

    Raises:
        AccountError: It is revoked, or has one secret only.
    """
    _check_not_revoked(account)
    if len(account.secrets) < SECRETS:
        raise AccountError(
            f"{account.name} has one secret, and could not sign in without: make the next one with"
            f" `./afterturn accounts rotate {account.name}`, or end the account with `./afterturn"
            f" accounts revoke {account.name}`"
        )
    return _changed(account, secrets=account.secrets[1:])


def revoked(account: ServiceAccount, at: datetime) -> ServiceAccount:
    """Return an account that can't sign in any more; one that is revoked as it is."""
    if account.revoked_at is not None:
        return account
    return _changed(account, secrets=(), revoked_at=at)


def _changed(account: ServiceAccount, **fields: object) -> ServiceAccount:
    return ServiceAccount.model_validate(dict(account) | fields | {"rev": account.rev + 1})


def _check_not_revoked(account: ServiceAccount) -> None:
    if account.revoked_at is not None:
        raise AccountError(
            f"{account.name} is revoked: make another account with `./afterturn accounts create`"
        )
