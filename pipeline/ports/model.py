"""What the steps need of a model."""

from dataclasses import dataclass
from typing import Protocol

from schemas.extraction import Reply
from schemas.memory import Kind
from schemas.project import NO_INSTRUCTIONS, Instructions
from schemas.turn import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One part to be extracted: a pure function of snapshot, tail and extractor version."""

    turns: tuple[Turn, ...]
    context: tuple[Turn, ...]
    """A bounded tail of the turns before; not to be extracted from."""
    kinds: tuple[Kind, ...]
    max_tokens: int | None
    """None for the configured limit."""
    instructions: Instructions = NO_INSTRUCTIONS
    """The project's own."""


class Model(Protocol):
    """A model behind instructor, with the prompt that all projects share."""

    @property
    def name(self) -> str:
        """The vendor's name of the model, as configured."""
        ...

    @property
    def version(self) -> str:
        """The extractor version where a project adds nothing.

        A hash of prompt, schema, model and parameters.
        """
        ...

    @property
    def max_tokens(self) -> int:
        """The configured limit of an answer."""
        ...

    async def answer(self, request: ModelRequest) -> Reply:
        """Return a checked answer with secrets taken out. Re-asks are inside; nothing else is.

        Raises:
            AnswerError: The answer is truncated, refused, filtered or stayed invalid.
            Exception: What the vendor's client raised; `pipeline.failing.failures` classifies it.
        """
        ...
