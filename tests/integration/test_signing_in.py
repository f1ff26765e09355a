"""Signing in on a real database, at moments that a test chooses."""

import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from consumers.wiring import Installation, wire
from pipeline.access.rights import HASHING_PURPOSE, Secrets
from pipeline.access.signing_in import FRESH, LOGINS, REFUSALS, Authenticator, Logins
from pipeline.access.tokens import LIFE, SIGNING_PURPOSE, Tokens
from pipeline.errors import AccountError, InvalidInputError, TooOftenError, UnauthenticatedError
from pipeline.metrics import NO_METRICS
from pipeline.settings import Settings
from pipeline.stores.accounts import MongoAccounts
from pipeline.stores.mongo import Database
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.access import Role
from schemas.operator_action import Act
from tests.integration.serving import Silent
from tests.integration.signing import Credentials, account, desk
from tests.virtual_time import VirtualTime


@dataclass(slots=True, kw_only=True)
class World:
    """An account, and what lets it in, at moments of one clock each."""

    parts: Installation
    server_time: VirtualTime
    first: Credentials
    logins: Logins
    authenticator: Authenticator
    seconds: list[float] = field(default_factory=lambda: [0.0])

    async def token(self, secret: str) -> str:
        token, _ = await self.logins.login(self.first.client_id, secret)
        return token

    async def is_known(self, token: str) -> bool:
        try:
            await self.authenticator.principal(token)
        except UnauthenticatedError:
            return False
        return True

    async def acts(self) -> list[str]:
        trail = MongoOperatorActions(self.parts.database)
        return [each.act.value for each in await trail.of_target(self.first.client_id)]


@pytest.fixture
async def world(db: Database) -> AsyncGenerator[World]:
    server_time = VirtualTime()
    parts = await wire(Settings(), db, Silent(), server_time=server_time)
    accounts, tokens = MongoAccounts(db), Tokens(parts.ids.derived_key(SIGNING_PURPOSE))
    seconds = [0.0]
    yield World(
        parts=parts,
        server_time=server_time,
        first=await account(parts, "assistant", "alpha", org="north"),
        logins=Logins(
            accounts=accounts,
            actions=MongoOperatorActions(db),
            secrets=Secrets(parts.ids.derived_key(HASHING_PURPOSE)),
            tokens=tokens,
            server_time=server_time,
            monotonic=lambda: seconds[0],
            random=secrets.token_bytes,
            metrics=NO_METRICS,
        ),
        authenticator=Authenticator(
            accounts=accounts,
            tokens=tokens,
            server_time=server_time,
            monotonic=lambda: seconds[0],
        ),
        seconds=seconds,
    )


async def test_a_token_is_its_accounts_for_an_hour(world: World) -> None:
    token = await world.token(world.first.secret)
    principal = await world.authenticator.principal(token)

    assert (principal.account_id, principal.role) == (world.first.client_id, Role.AGENT)
    assert (principal.project_id, principal.org_id) == ("alpha", "north")
    world.server_time.passes(LIFE)
    with pytest.raises(UnauthenticatedError, match="expired"):
        await world.authenticator.principal(token)


async def test_two_secrets_are_valid_while_an_agent_is_moved_to_the_next(world: World) -> None:
    by_old = await world.token(world.first.secret)
    second = (await desk(world.parts).rotate("assistant")).secret
    by_both = [by_old, await world.token(world.first.secret), await world.token(second)]
    world.seconds[0] += FRESH.total_seconds()

    assert [await world.is_known(token) for token in by_both] == [True, True, True]
    with pytest.raises(AccountError, match="accounts retire assistant"):
        await desk(world.parts).rotate("assistant")

    await desk(world.parts).retire("assistant")
    with pytest.raises(UnauthenticatedError):
        await world.token(world.first.secret)
    # What is known of the account is used until it is five seconds old, and no moment longer.
    world.seconds[0] += FRESH.total_seconds() - 0.5
    assert [await world.is_known(token) for token in by_both] == [True, True, True]
    world.seconds[0] += 0.5
    assert [await world.is_known(token) for token in by_both] == [False, False, True]
    assert await world.is_known(await world.token(second))
    with pytest.raises(AccountError, match="one secret"):
        await desk(world.parts).retire("assistant")


async def test_a_revoked_account_is_of_no_use_and_its_name_stays_taken(world: World) -> None:
    token = await world.token(world.first.secret)
    assert await world.is_known(token)
    await desk(world.parts).revoke("assistant")
    world.seconds[0] += FRESH.total_seconds()

    assert not await world.is_known(token)
    with pytest.raises(UnauthenticatedError):
        await world.token(world.first.secret)
    for act in (desk(world.parts).rotate, desk(world.parts).retire):
        with pytest.raises(AccountError, match="revoked"):
            await act("assistant")
    with pytest.raises(AccountError, match="another name"):
        await account(world.parts, "assistant", "beta")
    assert (await desk(world.parts).revoke("assistant")).revoked_at is not None


async def test_a_token_is_pinned_to_its_project_and_ends_with_its_account(world: World) -> None:
    """Whatever somebody does to the account by hand."""
    token = await world.token(world.first.secret)
    accounts = world.parts.database["service_accounts"]
    for change, put_back in (
        ({"project_id": "beta"}, {"project_id": "alpha"}),
        ({"revoked_at": datetime(2026, 1, 1, tzinfo=UTC)}, {"revoked_at": None}),
    ):
        for fields, is_good in ((change, False), (put_back, True)):
            await accounts.update_one({"_id": world.first.client_id}, {"$set": fields})
            world.seconds[0] += FRESH.total_seconds()
            assert await world.is_known(token) == is_good


async def test_every_act_is_in_the_trail_once_and_nothing_of_what_was_sent(world: World) -> None:
    await world.token(world.first.secret)
    with pytest.raises(UnauthenticatedError):
        await world.token("planted")
    with pytest.raises(UnauthenticatedError):
        await world.logins.login("planted", "planted")
    second = (await desk(world.parts).rotate("assistant")).secret
    await desk(world.parts).retire("assistant")
    for _ in range(2):
        await desk(world.parts).revoke("assistant")
    with pytest.raises(AccountError):
        await desk(world.parts).revoke("planted")

    assert sorted(await world.acts()) == sorted(
        (
            Act.LOGIN,
            Act.LOGIN_REFUSED,
            Act.ACCOUNT_CREATE,
            Act.ACCOUNT_ROTATE,
            Act.ACCOUNT_RETIRE,
            Act.ACCOUNT_REVOKE,
        )
    )
    database = world.parts.database
    everything = str(
        [
            document
            for name in await database.list_collection_names()
            async for document in database[name].find({})
        ]
    )
    assert world.first.client_id in everything
    for secret in ("planted", world.first.secret, second):
        assert secret not in everything


async def test_an_act_that_can_not_be_written_is_not_done(world: World) -> None:
    class Full:
        async def write(self, action: object) -> None:
            raise OSError

    work = desk(world.parts)
    work._actions = Full()  # pyright: ignore[reportPrivateUsage] # what a full disk does

    for act in (work.rotate("assistant"), work.revoke("assistant")):
        with pytest.raises(OSError, match=r"^$"):
            await act
    kept = await MongoAccounts(world.parts.database).by_name("assistant")
    assert kept is not None
    assert (kept.rev, len(kept.secrets), kept.revoked_at) == (0, 1, None)


async def test_refusals_are_counted_and_keep_nobody_out_who_has_the_secret(world: World) -> None:
    for _ in range(REFUSALS.burst):
        with pytest.raises(UnauthenticatedError):
            await world.token("wrong")
    for _ in range(3):
        with pytest.raises(TooOftenError):
            await world.token("wrong")
    with pytest.raises(TooOftenError) as told:
        await world.token("wrong")
    assert told.value.wait_seconds == pytest.approx(1 / REFUSALS.per_second)
    with pytest.raises(UnauthenticatedError):
        await world.logins.login("unknown", "wrong")
    await world.token(world.first.secret)

    assert (await world.acts()).count(Act.LOGIN_REFUSED) == REFUSALS.burst
    world.seconds[0] += told.value.wait_seconds
    with pytest.raises(UnauthenticatedError):
        await world.token("wrong")


async def test_unknown_accounts_share_one_limit_whatever_they_are_called(world: World) -> None:
    names = [f"sa_{number}" for number in range(REFUSALS.burst + 5)]
    refused: list[type[Exception]] = []
    for name in (*names, "x" * 1000):
        with pytest.raises((UnauthenticatedError, TooOftenError)) as told:
            await world.logins.login(name, "wrong")
        refused.append(told.type)

    trail = await MongoOperatorActions(world.parts.database).of_target("unknown")
    assert refused == [UnauthenticatedError] * REFUSALS.burst + [TooOftenError] * 6
    assert len(trail) == REFUSALS.burst


async def test_an_account_that_signs_in_for_each_request_is_told_so(world: World) -> None:
    for _ in range(LOGINS.burst):
        await world.token(world.first.secret)
    with pytest.raises(TooOftenError) as told:
        await world.token(world.first.secret)

    assert told.value.wait_seconds == pytest.approx(1 / LOGINS.per_second)


@pytest.mark.parametrize(
    ("named", "field"),
    [
        ({"name": "a b"}, "name"),
        ({"name": "x", "project": " "}, "project_id"),
        ({"name": "x", "org": ""}, "org_id"),
        ({"name": "x", "project": "a" * 300}, "project_id"),
    ],
)
async def test_what_can_be_no_account_is_refused_and_leaves_nothing(
    db: Database, named: dict[str, str], field: str
) -> None:
    parts = await wire(Settings(), db, Silent())
    with pytest.raises(InvalidInputError, match=f"^{field}: "):
        await account(parts, **{"project": "alpha", **named})  # pyright: ignore[reportArgumentType]

    assert await MongoAccounts(db).all() == []
    assert await db["operator_actions"].count_documents({}) == 0
