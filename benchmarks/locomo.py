"""Conversations in LoCoMo's format: what was said, and questions with the turns that answer them.

Source: Maharana and others, "Evaluating Very Long-Term Conversational Memory of LLM Agents", 2024.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pipeline.errors import ConfigurationError

CATEGORIES: Final[Mapping[int, str]] = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: "adversarial",
}
_TURN_ID: Final = re.compile(r"D\d+:\d+")
_WHEN: Final = "%I:%M %p on %d %B, %Y"
_BETWEEN_TURNS: Final = timedelta(seconds=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One turn."""

    turn: str
    """What evidence calls it."""
    content: str
    """Who speaks, and what they say; pictures are left out."""
    session: str
    said_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, and the turns that hold its answer."""

    text: str
    category: str
    evidence: frozenset[str]
    """Never empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Two people's sessions, by time."""

    name: str
    said: tuple[Said, ...]
    questions: tuple[Question, ...]
    left_out: int
    """Questions whose evidence names no turn."""


def conversations_of(file: Path) -> list[Conversation]:
    """Return the conversations of a file.

    Raises:
        ConfigurationError: It is not in this format.
        OSError: It can't be read.
    """
    try:
        return [_conversation(raw) for raw in json.loads(file.read_text(encoding="utf-8"))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"{file} is not in LoCoMo's format ({type(error).__name__}): name a JSON list of"
            " objects with `conversation` (session_1, session_1_date_time, ...) and `qa`"
        ) from error


def _conversation(raw: Mapping[str, Any]) -> Conversation:
    said = tuple(_said(raw["conversation"]))
    turns = {one.turn for one in said}
    questions = [
        Question(
            text=asked["question"],
            category=CATEGORIES[asked["category"]],
            evidence=frozenset(_TURN_ID.findall(" ".join(asked.get("evidence", ())))) & turns,
        )
        for asked in raw["qa"]
    ]
    usable = tuple(question for question in questions if question.evidence)
    return Conversation(
        name=raw["sample_id"],
        said=said,
        questions=usable,
        left_out=len(questions) - len(usable),
    )


def _said(sessions: Mapping[str, Any]) -> Iterator[Said]:
    numbers = (re.fullmatch(r"session_(\d+)", name) for name in sessions)
    for number in sorted(int(found[1]) for found in numbers if found):
        session = f"session_{number}"
        began = datetime.strptime(sessions[f"{session}_date_time"], _WHEN).replace(tzinfo=UTC)
        for place, turn in enumerate(sessions[session]):
            yield Said(
                turn=turn["dia_id"],
                content=f"{turn['speaker']}: {turn['text']}",
                session=session,
                said_at=began + place * _BETWEEN_TURNS,
            )
