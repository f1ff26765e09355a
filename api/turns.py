"""Recording turns and closing sessions."""

from typing import Any, ClassVar, Final

from fastapi import APIRouter, Response
from pydantic import AwareDatetime, BaseModel, Field, JsonValue

from api.naming import Caller, Named
from api.parts import Call, Called, Storing
from schemas.turn import TurnDraft

_NAMELESS: Final = "unnamed"


class TurnBody(Named):
    """A turn as the client sends it; `tokens` and `stop_reason` are accepted without effect."""

    is_mended: ClassVar[bool] = True

    role: str = Field(examples=["user"])
    content: str | None = Field(default=None, examples=["I'm allergic to penicillin."])
    tool_calls: list[dict[str, JsonValue]] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    is_error: bool = False
    model_name: str | None = None
    metadata: dict[str, Any] | None = None
    idempotency_key: str | None = None
    created_at: AwareDatetime | None = None


class TurnResult(BaseModel):
    """A stored turn."""

    id: str
    session_id: str
    turn_seq: int
    acknowledged: bool = True
    has_embedding: bool = False


class CloseBody(Named):
    """A session that is over."""


class CloseResult(BaseModel):
    """What was closed."""

    session_id: str
    acknowledged: bool = True


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["turns"])

    async def record(body: TurnBody, call: Storing, response: Response) -> TurnResult:
        """Store a turn, durably, before this is answered. A new turn is 201, a known one 200.

        With an `idempotency_key` it may be sent again; the same key with another turn is 409.
        """
        recorded = await call.parts.recorder.record_once(_identity(body, call.caller), _said(body))
        # Only what was recorded tells whose an execution is; a refused turn is nobody's.
        await _noted(body, call)
        response.status_code = 201 if recorded.is_new else 200
        turn = recorded.turn
        return TurnResult(id=turn.turn_id, session_id=turn.identity.session_id, turn_seq=turn.seq)

    async def close(body: CloseBody, call: Called) -> CloseResult:
        """Have all that is open in a session extracted now; a later turn opens it again."""
        identity = _identity(body, call.caller)
        await call.parts.recorder.close(identity)
        return CloseResult(session_id=str(identity["session_id"]))

    for path in ("/turns", "/stm/turns"):
        routes.post(path, status_code=201)(record)
    routes.post("/sessions/close")(close)
    return routes


async def _noted(body: TurnBody, call: Call) -> None:
    """Note for whom an execution is: what it saves of the project's own types is theirs."""
    execution_id = call.caller.execution_id
    if execution_id is not None and body.user_id is not None:
        project_id = call.caller.project(body)
        await call.parts.executions.note(project_id, execution_id, body.user_id)


def _identity(body: Named, caller: Caller) -> dict[str, object]:
    """Return whose session it is, for the recorder to check."""
    named = {
        "project_id": caller.project(body),
        "user_id": body.user_id,
        "session_id": body.session_id,
        "org_id": caller.org(body),
        "agent_id": body.agent_id or caller.agent_id,
    }
    return {name: value for name, value in named.items() if value is not None}


def _said(body: TurnBody) -> dict[str, object]:
    given = body.model_dump(include=set(TurnDraft.model_fields) - {"tool_calls"}, exclude_none=True)
    if body.tool_calls:
        given["tool_calls"] = [_call(*each) for each in enumerate(body.tool_calls)]
    return given


def _call(place: int, sent: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a tool call, from the shape of any vendor whose shape is known.

    OpenAI nests name and arguments in `function`, Anthropic has `input`, others `args`.
    """
    inner = sent.get("function")
    call = {**sent, **inner} if isinstance(inner, dict) else sent
    arguments = next((call[name] for name in ("arguments", "input", "args") if name in call), None)
    return {
        "id": call.get("id") or call.get("tool_call_id") or f"call_{place}",
        "name": call.get("name") or call.get("tool_name") or _NAMELESS,
        "arguments": arguments,
    }
