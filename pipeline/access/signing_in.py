"""Signing in with a client secret, and being known again by the token that this gives."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pipeline.access.rates import Buckets, Rate
from pipeline.access.rights import Secrets
from pipeline.access.tokens import Claims, Tokens
from pipeline.errors import TooOftenError, UnauthenticatedError
from pipeline.metrics import Metrics
from pipeline.ports.accounts import Accounts
from pipeline.ports.clocks import ServerTime
from pipeline.ports.operator_actions import OperatorActions
from schemas.access import Role, ServiceAccount
from schemas.operator_action import Act, OperatorAction

FRESH: Final = timedelta(seconds=5)
"""So long may pass until a revoked account, or a retired secret, is of no use any more."""
LOGINS: Final = Rate(burst=60, per_second=0.5)
"""How often an account may sign in at one process."""
REFUSALS: Final = Rate(burst=10, per_second=1 / 30)
"""How often an account, and all unknown ones together, are refused in so many words. A right secret
is let in all the same: nobody can keep an account out by sending wrong ones."""
_UNKNOWN: Final = "unknown"
_ID_LENGTH: Final = 128
_ID_BYTES: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks, as far as it was shown."""

    account_id: str
    role: Role
    project_id: str
    org_id: str | None
    token_id: str


class Logins:
    """Gives tokens for secrets.

    Concurrency: any number of callers on one event loop.
    """

    def __init__(
        self,
        *,
        accounts: Accounts,
        actions: OperatorActions,
        secrets: Secrets,
        tokens: Tokens,
        server_time: ServerTime,
        monotonic: Callable[[], float],
        random: Callable[[int], bytes],
        metrics: Metrics,
    ) -> None:
        self._accounts = accounts
        self._actions = actions
        self._secrets = secrets
        self._tokens = tokens
        self._server_time = server_time
        self._monotonic = monotonic
        self._random = random
        self._metrics = metrics
        self._logins = Buckets(LOGINS)
        self._refusals = Buckets(REFUSALS)

    async def login(self, client_id: str, secret: str) -> tuple[str, ServiceAccount]:
        """Return a token, and whose it is; the audit trail has it first.

        Raises:
            UnauthenticatedError: There is no such account with such a secret; which of both is
                wrong is not told.
            TooOftenError: There were too many logins, or too many refused ones.
        """
        is_possible = len(client_id) <= _ID_LENGTH
        account = await self._accounts.by_id(client_id) if is_possible else None
        stored = self._secrets.matching(account, secret)
        now_ms = await self._server_time.now_ms()
        if account is None or stored is None:
            await self._refuse(account, now_ms)
            raise UnauthenticatedError("there is no such account with such a secret")
        self._check(self._logins, account.account_id, "this account signs in too often")
        await self._note(Act.LOGIN, account, now_ms)
        self._metrics.login("granted")
        token_id = self._random(_ID_BYTES).hex()
        token = self._tokens.make(account, stored.secret_id, token_id=token_id, now_ms=now_ms)
        return token, account

    async def _refuse(self, account: ServiceAccount | None, now_ms: int) -> None:
        key = _UNKNOWN if account is None else account.account_id
        self._check(self._refusals, key, "too many logins were refused")
        await self._note(Act.LOGIN_REFUSED, account, now_ms)
        self._metrics.login("refused")

    def _check(self, buckets: Buckets, key: str, what: str) -> None:
        if wait := buckets.take(key, self._monotonic()):
            self._metrics.login("limited")
            raise TooOftenError(f"{what}: try again later", wait)

    async def _note(self, act: Act, account: ServiceAccount | None, now_ms: int) -> None:
        target = _UNKNOWN if account is None else account.account_id
        await self._actions.write(
            OperatorAction(
                action_id=self._random(_ID_BYTES).hex(),
                at=datetime.fromtimestamp(now_ms / 1000, UTC),
                by=target,
                act=act,
                target=target,
                project_id=None if account is None else account.project_id,
            )
        )


class Authenticator:
    """Knows who asks by a token.

    An account is read again when what is known of it is `FRESH` old.
    """

    def __init__(
        self,
        *,
        accounts: Accounts,
        tokens: Tokens,
        server_time: ServerTime,
        monotonic: Callable[[], float],
    ) -> None:
        self._accounts = accounts
        self._tokens = tokens
        self._server_time = server_time
        self._monotonic = monotonic
        self._known: dict[str, tuple[ServiceAccount | None, float]] = {}

    async def principal(self, token: str) -> Principal:
        """Return who has this token.

        Raises:
            UnauthenticatedError: Nobody has; the message says what to do.
        """
        claims = self._tokens.read(token, now_ms=await self._server_time.now_ms())
        account = await self._account(claims.account_id)
        if account is None or not _is_valid(claims, account):
            raise UnauthenticatedError(
                "the token's account was revoked, or its secret retired: sign in with a valid one"
            )
        return Principal(
            account_id=account.account_id,
            role=account.role,
            project_id=account.project_id,
            org_id=account.org_id,
            token_id=claims.token_id,
        )

    async def _account(self, account_id: str) -> ServiceAccount | None:
        # Only ids that this installation signed get here, so there are no more than accounts.
        now = self._monotonic()
        known = self._known.get(account_id)
        if known is not None and now - known[1] < FRESH.total_seconds():
            return known[0]
        account = await self._accounts.by_id(account_id)
        self._known[account_id] = (account, now)
        return account


def _is_valid(claims: Claims, account: ServiceAccount) -> bool:
    return (
        account.revoked_at is None
        and claims.project_id == account.project_id
        and claims.secret_id in {secret.secret_id for secret in account.secrets}
    )
