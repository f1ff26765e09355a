"""`resume`: let go on what breakers and mass guards hold back, once its cause is mended."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.connecting import connected
from cli.environment import DATA_DIR, AsJson, DataDir, settings_for
from cli.output import Output
from cli.running import run
from consumers.wiring import Installation
from pipeline.failing.reasons import Reason, remedy
from pipeline.failing.resuming import resume_breaker, resume_guard
from pipeline.settings import Settings
from pipeline.stores.switches import MongoBreakers, MongoGuards
from schemas.breaker import Breaker, BreakerPhase

_MEND: Final = "Mend its cause."


def register(application: typer.Typer) -> None:
    """Add the command."""
    application.command("resume")(resume)


def resume(
    name: Annotated[str, typer.Argument(help="A breaker or guard, as `status` names it.")],
    *,
    data_dir: DataDir = DATA_DIR,
    as_json: AsJson = False,
) -> None:
    """Let a breaker be tried at once, or a mass guard let letters through again."""
    run(_resume(name, settings_for(data_dir), data_dir, Output(as_json=as_json)))


async def _resume(name: str, settings: Settings, data_dir: Path, output: Output) -> int:
    async with connected(settings, data_dir) as parts:
        held = await held_back(parts)
        if name not in {one["name"] for one in held}:
            known = ", ".join(one["name"] for one in held) or "nothing is held back"
            output.say(f"{name} holds nothing back. What does: {known}")
            output.result({"resumed": None, "held_back": held})
            return 1
        if any(one["name"] == name and one["kind"] == "breaker" for one in held):
            await resume_breaker(name, MongoBreakers(parts.database), parts.server_time)
        else:
            await resume_guard(name, MongoGuards(parts.database))
    output.say(f"{name} is resumed; `./afterturn status` tells how it goes")
    output.result({"resumed": name})
    return 0


async def held_back(parts: Installation) -> list[dict[str, Any]]:
    """Return what breakers and guards hold back, why, and what to do.

    That is every breaker that is not closed, or whose vendor asked for time, and every guard that
    has tripped.
    """
    now_ms = await parts.server_time.now_ms()
    breakers = [
        _breaker(breaker, is_slow=breaker.slow_until_ms > now_ms)
        for breaker in await MongoBreakers(parts.database).all()
        if breaker.phase is not BreakerPhase.CLOSED or breaker.slow_until_ms > now_ms
    ]
    guards = [
        {
            "kind": "guard",
            "name": guard.guard_id,
            "state": "tripped",
            "reason": guard.reason,
            "action": "Put the former prompt or model back.",
            "since_ms": guard.tripped_at_ms,
        }
        for guard in await MongoGuards(parts.database).all()
        if guard.tripped_at_ms is not None
    ]
    return [*breakers, *guards]


def _breaker(breaker: Breaker, *, is_slow: bool) -> dict[str, Any]:
    is_asked_to_wait = is_slow and breaker.phase is BreakerPhase.CLOSED
    reason = Reason.HTTP_429.value if is_asked_to_wait else breaker.reason
    return {
        "kind": "breaker",
        "name": breaker.breaker_id,
        "state": "slowed down" if is_asked_to_wait else breaker.phase.value,
        "reason": reason,
        "action": remedy(reason or "") or _MEND,
        "next_try_ms": max(breaker.try_at_ms, breaker.slow_until_ms),
    }
