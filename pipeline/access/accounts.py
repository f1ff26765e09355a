"""What operators do with service accounts. Every act is in the audit trail before it is done."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import ValidationError

from pipeline.access.rights import SECRET_BYTES, Secrets, retired, revoked, rotated, secret_from
from pipeline.errors import AccountError, InvalidInputError, Problem
from pipeline.ports.accounts import Accounts
from pipeline.ports.clocks import ServerTime
from pipeline.ports.operator_actions import OperatorActions
from pipeline.recording import rule_of
from schemas.access import Role, ServiceAccount, StoredSecret
from schemas.operator_action import Act, OperatorAction

ID_BYTES = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSecret:
    """A secret, to be shown this once: what is stored can't be turned back into it."""

    account: ServiceAccount
    secret: str


class AccountDesk:
    """Makes, rotates and ends service accounts.

    Concurrency: two operators at once are two acts one after the other, in the order stored.
    """

    def __init__(
        self,
        *,
        accounts: Accounts,
        actions: OperatorActions,
        secrets: Secrets,
        server_time: ServerTime,
        random: Callable[[int], bytes],
        by: str,
    ) -> None:
        self._accounts = accounts
        self._actions = actions
        self._secrets = secrets
        self._server_time = server_time
        self._random = random
        self._by = by

    async def create(
        self, name: str, *, project_id: str, role: Role, org_id: str | None = None
    ) -> NewSecret:
        """Return a new account with its first secret.

        Raises:
            AccountError: The name is taken, be it by a revoked account.
            InvalidInputError: Something can't be called so.
        """
        now = await self._now()
        account_id = f"sa_{self._random(ID_BYTES).hex()}"
        stored, secret = self._secret(account_id, now)
        try:
            account = ServiceAccount(
                account_id=account_id,
                name=name,
                project_id=project_id,
                org_id=org_id,
                role=role,
                secrets=(stored,),
                created_at=now,
            )
        except ValidationError as error:
            raise InvalidInputError(
                tuple(
                    Problem(field=str(found["loc"][0]), rule=rule_of(found))
                    for found in error.errors()
                )
            ) from None
        if await self._accounts.by_name(name) is None:
            await self._note(Act.ACCOUNT_CREATE, account, now)
            if await self._accounts.add(account):
                return NewSecret(account=account, secret=secret)
        raise AccountError(
            f"there is an account {name}, or was: take another name, or see `./afterturn accounts"
            " list`"
        )

    async def rotate(self, name: str) -> NewSecret:
        """Return a second secret, valid beside the first until that is retired.

        Raises:
            AccountError: There is no such account, or it can't have another.
        """
        now = await self._now()
        stored: StoredSecret | None = None
        secret = ""

        def change(account: ServiceAccount) -> ServiceAccount:
            nonlocal stored, secret
            if stored is None:
                stored, secret = self._secret(account.account_id, now)
            return rotated(account, stored)

        account = await self._change(name, Act.ACCOUNT_ROTATE, change, now)
        return NewSecret(account=account, secret=secret)

    async def retire(self, name: str) -> ServiceAccount:
        """Return the account without its older secret; the tokens got with that end too.

        Raises:
            AccountError: There is no such account, or it has no two secrets.
        """
        return await self._change(name, Act.ACCOUNT_RETIRE, retired, await self._now())

    async def revoke(self, name: str) -> ServiceAccount:
        """Return the account as one that can't sign in, nor use a token. Idempotent.

        Raises:
            AccountError: There is no such account.
        """
        now = await self._now()
        return await self._change(
            name, Act.ACCOUNT_REVOKE, lambda account: revoked(account, now), now
        )

    async def _change(
        self,
        name: str,
        act: Act,
        change: Callable[[ServiceAccount], ServiceAccount],
        now: datetime,
    ) -> ServiceAccount:
        while True:
            before = await self._accounts.by_name(name)
            if before is None:
                raise AccountError(
                    f"there is no account {name}: `./afterturn accounts list` names those there are"
                )
            after = change(before)
            if after == before:
                return before
            await self._note(act, before, now)
            if await self._accounts.swap(before, after):
                return after

    def _secret(self, account_id: str, now: datetime) -> tuple[StoredSecret, str]:
        secret = secret_from(self._random(SECRET_BYTES))
        stored = StoredSecret(
            secret_id=self._random(ID_BYTES).hex(),
            digest=self._secrets.digest(account_id, secret),
            created_at=now,
        )
        return stored, secret

    async def _note(self, act: Act, account: ServiceAccount, now: datetime) -> None:
        await self._actions.write(
            OperatorAction(
                action_id=self._random(ID_BYTES).hex(),
                at=now,
                by=self._by,
                act=act,
                target=account.account_id,
                project_id=account.project_id,
            )
        )

    async def _now(self) -> datetime:
        return datetime.fromtimestamp(await self._server_time.now_ms() / 1000, UTC)
