"""What a request and its answer say, in no vendor's words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, cast

from afterturn.turns import Json, Turn, digest_of


class Outcome(Enum):
    """What became of an answer."""

    WHOLE = auto()
    """The model said that it is at its end."""
    UNFINISHED = auto()
    """It is good as far as it goes, and its end was never seen."""
    FAILED = auto()
    """There is none: an error, or nothing that could be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a request says."""

    turns: tuple[Turn, ...]
    """Its messages, the oldest first, less what is no turn (system prompts, thinking)."""
    root: str = ""
    """The answer after which this is said, where the vendor keeps what was said before."""
    is_kept: bool = False
    """Whether the vendor keeps what was said before, and the request doesn't name the place."""
    starts_answer: bool = False
    """Whether the last turn is the beginning of the answer, put into the model's mouth."""

    @property
    def asked(self) -> int:
        """The index of the first turn that no answer in the history stands behind."""
        answers = [index for index, turn in enumerate(self.turns) if turn.role == "assistant"]
        return answers[-1] + 1 if answers else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the model says."""

    outcome: Outcome
    turns: tuple[Turn, ...] = ()
    """What it says, as far as it came, less calls of tools whose end never came."""
    model: str | None = None
    """The model that says it answered."""
    answer_id: str = ""
    """What the vendor calls this answer."""


FAILED = Answer(outcome=Outcome.FAILED)
UNDECIDED = Answer(outcome=Outcome.UNFINISHED)
"""There are several, and the next request says which of them was taken."""


def objects(value: Any) -> list[Json]:
    """Return the objects of a list, or none where it is no list."""
    if not isinstance(value, list):
        return []
    return [cast("Json", item) for item in cast("list[Any]", value) if isinstance(item, dict)]


def text_of(value: Any) -> str | None:
    """Return text that is no empty text."""
    return value if isinstance(value, str) and value else None


def parts_of(content: Any, *, joined_by: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of a message and digests of what in it is not text.

    What is not text stands in the text by its type, in brackets, on a line of its own.
    """
    if isinstance(content, str):
        return content, ()
    texts: list[str] = []
    attached: list[str] = []
    for part in objects(content):
        text = part.get("text", part.get("refusal"))
        if isinstance(text, str):
            texts.append(text)
        else:
            texts.append(f"[{part.get('type', 'attachment')}]")
            attached.append(digest_of(part).hex())
    joiner = "\n" if attached else joined_by
    return joiner.join(texts), tuple(attached)


def unfinished(texts: Iterable[str], model: object) -> Answer:
    """Return what came of an answer whose end did not."""
    turn = Turn(role="assistant", content="".join(texts))
    return Answer(outcome=Outcome.UNFINISHED, turns=speaking([turn]), model=text_of(model))


def speaking(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Return the turns that say something."""
    return tuple(turn for turn in turns if turn.says_something)


def named(turns: Sequence[Turn]) -> dict[str, str]:
    """Return the names of the tools that were called, by the ids of the calls."""
    return {call.call_id: call.name for turn in turns for call in turn.tool_calls}
