"""`accounts`: who may sign in at the memory server."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for, who_calls
from cli.output import Output, counted
from cli.running import run
from pipeline.access.accounts import AccountDesk, NewSecret
from pipeline.access.rights import HASHING_PURPOSE, Secrets
from pipeline.access.signing_in import FRESH
from pipeline.stores.accounts import MongoAccounts
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.access import SECRETS, Role, ServiceAccount

_SOON: Final = f"within {FRESH.total_seconds():.0f} s"

NameOf = Annotated[str, typer.Argument(metavar="NAME", help="As `accounts list` has it.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """What the commands work with."""

    desk: AccountDesk
    store: MongoAccounts


def register(application: typer.Typer) -> None:
    """Add the commands."""
    accounts = typer.Typer(help="Who may sign in at the memory server.", no_args_is_help=True)
    accounts.command("create")(create)
    accounts.command("list")(list_all)
    accounts.command("rotate")(rotate)
    accounts.command("retire")(retire)
    accounts.command("revoke")(revoke)
    application.add_typer(accounts, name="accounts")


def create(
    name: Annotated[str, typer.Argument(help="How you will call it; an account of its own each.")],
    *,
    project: Annotated[str, typer.Option(help="The one project it is for.")],
    role: Annotated[Role, typer.Option(help="What it is for.")] = Role.AGENT,
    org: Annotated[str | None, typer.Option(help="The one organization it is for.")] = None,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Make an account; its secret is shown this once."""
    output = Output(as_json=as_json)
    run(_create(name, data_dir, output, project=project, role=role, org=org))


def list_all(*, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """List the accounts, the revoked ones too."""
    run(_list(data_dir, Output(as_json=as_json)))


def rotate(name: NameOf, *, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """Make a second secret, shown this once; the first stays valid until it is retired."""
    run(_rotate(name, data_dir, Output(as_json=as_json)))


def retire(name: NameOf, *, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """End the older of two secrets, and the tokens that were got with it."""
    run(_retire(name, data_dir, Output(as_json=as_json)))


def revoke(name: NameOf, *, data_dir: DataDir = DATA_DIR, as_json: AsJson = False) -> None:
    """End an account for good, with its secrets and its tokens."""
    run(_revoke(name, data_dir, Output(as_json=as_json)))


async def _create(
    name: str, data_dir: Path, output: Output, *, project: str, role: Role, org: str | None
) -> int:
    async with _opened(data_dir) as opened:
        await opened.store.prepare()
        made = await opened.desk.create(name, project_id=project, role=role, org_id=org)
    output.say(f"Account {name}: {role}, project {project}{_of_org(org)}")
    _show(made, output)
    return 0


async def _list(data_dir: Path, output: Output) -> int:
    async with _opened(data_dir) as opened:
        found = await opened.store.all()
    for account in found:
        state = "revoked" if account.revoked_at else counted(len(account.secrets), "secret")
        output.say(
            f"{account.name}: {account.role}, project {account.project_id}"
            f"{_of_org(account.org_id)}, client id {account.account_id}, {state}"
        )
    if not found:
        output.say("There are no accounts: `./afterturn accounts create` makes one.")
    output.result({"accounts": [_told(account) for account in found]})
    return 0


async def _rotate(name: str, data_dir: Path, output: Output) -> int:
    async with _opened(data_dir) as opened:
        made = await opened.desk.rotate(name)
    output.say(f"Account {name} has {SECRETS} valid secrets now; the new one:")
    _show(made, output)
    output.say(
        f"When nobody uses the older any more, end it with `./afterturn accounts retire {name}`."
    )
    return 0


async def _retire(name: str, data_dir: Path, output: Output) -> int:
    async with _opened(data_dir) as opened:
        account = await opened.desk.retire(name)
    output.say(f"The older secret of {name} has ended; the tokens got with it end {_SOON}.")
    output.result(_told(account))
    return 0


async def _revoke(name: str, data_dir: Path, output: Output) -> int:
    async with _opened(data_dir) as opened:
        account = await opened.desk.revoke(name)
    output.say(f"Account {name} is revoked; its tokens end {_SOON}.")
    output.result(_told(account))
    return 0


@asynccontextmanager
async def _opened(data_dir: Path) -> AsyncGenerator[_Open]:
    async with connected(settings_for(data_dir), data_dir) as parts:
        store = MongoAccounts(parts.database)
        yield _Open(
            desk=AccountDesk(
                accounts=store,
                actions=MongoOperatorActions(parts.database),
                secrets=Secrets(parts.ids.derived_key(HASHING_PURPOSE)),
                server_time=parts.server_time,
                random=secrets.token_bytes,
                by=who_calls(),
            ),
            store=store,
        )


def _show(made: NewSecret, output: Output) -> None:
    output.say(f"  client id      {made.account.account_id}")
    output.say(f"  client secret  {made.secret}")
    output.say("The secret is shown this once: only a hash of it is kept.")
    output.result({**_told(made.account), "client_secret": made.secret})


def _told(account: ServiceAccount) -> dict[str, Any]:
    """Return what anybody may know of an account."""
    return {
        "name": account.name,
        "client_id": account.account_id,
        "project_id": account.project_id,
        "org_id": account.org_id,
        "role": account.role.value,
        "secrets": len(account.secrets),
        "created_at": account.created_at.isoformat(),
        "revoked_at": account.revoked_at.isoformat() if account.revoked_at else None,
    }


def _of_org(org: str | None) -> str:
    return "" if org is None else f", organization {org}"
