"""What was asked and answered for one answer, re-asks included, and what is wrong with it.

A response is read as plain JSON and trusted in nothing; what instructor gets to see is made anew
from what was checked. A completion as it came would be dumped into a re-ask by pydantic, which
warns about every value of an unforeseen type, and quotes it.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Self

import instructor
from instructor.core.exceptions import ResponseParsingError
from pydantic import JsonValue, ValidationError

from pipeline.errors import AnswerError
from pipeline.extracting import prompting
from pipeline.failing.failures import token
from pipeline.failing.reasons import Reason
from pipeline.models.answers import DefectError, parse
from schemas.failure import FailureClass
from schemas.memory import Answer

_INT64: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One response with a good status, as it came."""

    body: str | bytes
    request_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a function by the model."""

    name: object
    arguments: object
    """Text or an object, as the protocol has it."""
    raw: Mapping[str, Any]
    """Where it stood: what a re-ask must give back with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a completion says. Nothing in it is checked yet."""

    model: object
    prompt_tokens: object
    completion_tokens: object
    finish_reason: object
    calls: tuple[Call, ...] = ()
    text: str | None = None
    ending: tuple[FailureClass, Reason] | None = None
    """Why it is no answer, where asking again can't help."""
    defect: Reason | None = None
    """What is wrong with it besides its calls."""


@dataclass(slots=True)
class Exchange:
    """What was asked and answered for one `answer`, re-asks included."""

    calls: int = 0
    prompt_tokens: list[int | None] = field(default_factory=list[int | None])
    completion_tokens: list[int | None] = field(default_factory=list[int | None])
    defect: Reason | None = None
    """What is wrong with the latest completion."""
    finish_reason: str | None = None
    request_id: str | None = None
    model: str | None = None
    arguments: object = None
    """Of the latest completion's one call."""

    def error(self, failure_class: FailureClass, reason: Reason) -> AnswerError:
        """Return an error that says where this exchange ended."""
        return AnswerError(
            failure_class,
            reason,
            finish_reason=self.finish_reason,
            request_id=self.request_id,
            calls=self.calls,
            prompt_tokens=total(self.prompt_tokens),
            completion_tokens=total(self.completion_tokens),
        )

    def note(self, seen: Seen, request_id: str | None) -> None:
        """Note what a completion cost and what is wrong with it.

        Raises:
            AnswerError: No re-ask can help.
        """
        self.request_id = token(request_id)
        self.model = token(seen.model)
        self.finish_reason = token(seen.finish_reason)
        self.prompt_tokens.append(count(seen.prompt_tokens))
        self.completion_tokens.append(count(seen.completion_tokens))
        if seen.ending is not None:
            raise self.error(*seen.ending)
        self.defect = seen.defect or _defect(seen.calls)
        self.arguments = next((call.arguments for call in seen.calls), None)

    def answer(self) -> dict[str, JsonValue]:
        """Return the arguments of the latest completion's one call.

        Raises:
            DefectError: There is not one right call, or it can't be read without losing something.
        """
        if self.defect is not None:
            raise DefectError(self.defect)
        return parse(self.arguments)


def _defect(calls: tuple[Call, ...]) -> Reason | None:
    match calls:
        case ():
            return Reason.NO_TOOL_CALL
        case (call,):
            return None if call.name == prompting.TOOL_NAME else Reason.WRONG_TOOL
        case _:
            return Reason.TWO_TOOL_CALLS


def count(tokens: object) -> int | None:
    """Return a number of tokens, or none where that is not what was said."""
    if isinstance(tokens, bool) or not isinstance(tokens, int):
        return None
    return tokens if 0 <= tokens < _INT64 else None


def total(counts: list[int | None]) -> int | None:
    """Return the sum, or none where a request did not say what it cost."""
    known = [number for number in counts if number is not None]
    return count(sum(known)) if known and len(known) == len(counts) else None


EXCHANGE: Final[ContextVar[Exchange]] = ContextVar("exchange")
"""The exchange of the running task: instructor's parsers pass nothing of ours along."""


class Memories(Answer, instructor.ResponseSchema):
    """What is worth keeping of the turns, by kind, and a summary of them."""

    # Name and docstring are what a model is told of the function. An instance is read from the
    # exchange, whatever instructor hands over: that went through a library's own parser. The class
    # is made once: instructor would derive one and its schema anew for every call.

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_options: Any) -> Self:
        """Return the answer that the one call's arguments hold.

        Raises:
            ResponseParsingError: instructor tells the model what is wrong and asks again.
            ValidationError: The same.
        """
        return cls.model_validate(json_data)

    @classmethod
    def model_validate(cls, obj: Any, **_options: Any) -> Self:
        """Do the same."""
        exchange = EXCHANGE.get()
        try:
            return super().model_validate(exchange.answer())
        except DefectError as defect:
            exchange.defect = defect.reason
            raise ResponseParsingError(
                str(defect), mode=instructor.Mode.TOOLS.value, raw_response=None
            ) from None
        except ValidationError:
            exchange.defect = Reason.WRONG_SHAPE
            raise
