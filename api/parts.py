"""What every route is handed: the parts of the server, and who asks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request

from api.naming import Caller
from consumers.exporting import PrometheusExporter
from pipeline.ports import Records
from pipeline.saving import Saver
from pipeline.stores.turns import MongoTurns
from producers.recording import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the routes work with."""

    recorder: Recorder
    saver: Saver
    records: Records
    turns: MongoTurns
    exporter: PrometheusExporter | None
    ping: Callable[[], Awaitable[None]]
    """Returns if the database answers soon, else raises what its client raises."""


def asking(
    request: Request,
    agent: Annotated[str | None, Header(alias="X-Agent-Engine-Agent-Id")] = None,
    old_agent: Annotated[str | None, Header(alias="X-Agentic-Agent-Id")] = None,
    execution: Annotated[str | None, Header(alias="X-Agent-Engine-Execution-Id")] = None,
    old_execution: Annotated[str | None, Header(alias="X-Agentic-Execution-Id")] = None,
) -> Caller:
    """Return who asks: the project of the path, and the agent and execution of the headers."""
    return Caller(
        path_project=request.path_params.get("project_id"),
        agent_id=_name(agent) or _name(old_agent),
        execution_id=_name(execution) or _name(old_execution),
    )


def _name(header: str | None) -> str | None:
    return header if header and header.strip() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request: who asks, and what answers."""

    caller: Caller
    parts: Parts


def called(request: Request, caller: Annotated[Caller, Depends(asking)]) -> Call:
    """Return a request as the routes get it."""
    return Call(caller=caller, parts=request.app.state.parts)


Called = Annotated[Call, Depends(called)]
