"""Memories and turns as clients read them: chunks of a search, entries of a list."""

from typing import Any

from pydantic import JsonValue

from pipeline.reading.memories import Memory
from schemas.memory import (
    CustomContent,
    EpisodicContent,
    ProceduralContent,
    SemanticContent,
    TaxonomicContent,
)
from schemas.record import RunState
from schemas.turn import Turn

Json = dict[str, Any]


def chunk_of(memory: Memory, score: float | None) -> Json:
    """Return a memory as a search returns it; the caller's metadata has a slot of its own."""
    metadata = {**_fields(memory), **_provenance(memory)}
    return {
        "id": memory.memory_id,
        "content": memory.text,
        "source": memory.kind.value,
        "timestamp": memory.last_said.isoformat(),
        "similarity_score": score,
        "metadata": metadata | _own(memory.run.metadata),
    }


def entry_of(memory: Memory) -> Json:
    """Return a memory as a list or a look-up returns it."""
    return {
        "id": memory.memory_id,
        "content": memory.text,
        **_fields(memory),
        **_provenance(memory),
        "deleted": memory.run.state is RunState.ENDED,
        "created_at": memory.since.isoformat(),
        "updated_at": memory.last_said.isoformat(),
        "metadata": memory.run.metadata or {},
    }


def turn_chunk(turn: Turn, score: float | None) -> Json:
    """Return a turn as a context returns it."""
    said: Json = {
        "session_id": turn.identity.session_id,
        "user_id": turn.identity.user_id,
        "org_id": turn.identity.org_id,
        "project_id": turn.identity.project_id,
        "agent_id": turn.identity.agent_id,
        "role": turn.role.value,
        "turn_seq": turn.seq,
        "model_name": turn.model_name,
        "tool_call_id": turn.tool_call_id,
        "tool_name": turn.tool_name,
        "is_error": turn.is_error,
        "tool_calls": [call.model_dump() for call in turn.tool_calls] or None,
    }
    return {
        "id": turn.turn_id,
        "content": turn.content,
        "source": "stm",
        "timestamp": turn.effective_at.isoformat(),
        "similarity_score": score,
        "metadata": {name: value for name, value in said.items() if value is not None}
        | _own(turn.metadata),
    }


def _own(metadata: dict[str, JsonValue] | None) -> Json:
    """Return the slot of the caller's metadata; none where there is none."""
    return {"metadata": metadata} if metadata else {}


def _provenance(memory: Memory) -> Json:
    scope = memory.record.scope
    return {
        "user_id": scope.owner,
        "org_id": scope.org_id,
        "project_id": scope.project_id,
        "visibility": scope.visibility.value,
        "agent_id": memory.run.agents[-1] if memory.run.agents else None,
        "origin": memory.run.source or "extraction",
        "times_said": memory.times,
        **_ending(memory),
    }


def _ending(memory: Memory) -> Json:
    """Return how what is not current stands."""
    run = memory.run
    if run.state is RunState.CURRENT:
        return {}
    closed_at = None if run.closed_at is None else run.closed_at.isoformat()
    return {"state": run.state.value, "closed_at": closed_at}


def _fields(memory: Memory) -> Json:
    """Return the kind's own fields under the client's names."""
    own = {name: value for name, value in (memory.run.fields or {}).items() if name != "content"}
    content = memory.run.content
    match content:
        case SemanticContent():
            return {
                "label": content.label,
                "attribute": content.attribute,
                "subject": memory.record.subject,
                "text": content.text,
                "source": memory.run.source or "extraction",
                **own,
            }
        case EpisodicContent():
            return {
                "title": content.title,
                "summary_text": content.summary,
                "participants": list(content.participants),
                "outcome": content.outcome,
                "session_id": memory.run.sessions[-1] if memory.run.sessions else None,
                **own,
            }
        case ProceduralContent():
            return {
                "procedure": content.name,
                "description": content.description,
                "steps": [{"description": step} for step in content.steps],
                "trigger_conditions": list(content.trigger_conditions),
                "allowed_tools": list(content.tools),
                **own,
            }
        case TaxonomicContent():
            return {
                "domain": content.domain,
                "term": content.term,
                "definition": content.definition,
                "related_terms": list(content.related_terms),
                **own,
            }
        case CustomContent():
            return {"type": content.type, "tags": {tag.name: tag.value for tag in content.tags}}
