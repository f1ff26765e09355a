"""The errors we raise ourselves.

AfterturnError
├─ InvalidInputError        a caller's input breaks a rule; names field and rule, never a value
├─ UnknownMemoryError       no memory of that id is in the caller's scope
├─ UnsupportedError         a call that can't be answered for whom it comes from; it says what can
├─ UnknownTypeError         the project declares no type of that name; lists what it declares
├─ FilterError              a metadata filter that can't be answered; lists what can
├─ ConflictError            an idempotency key was used before, for another turn
├─ RecordingUnavailableError  the turn could not be stored; it may be tried again
├─ BrokerUnavailableError   a call to Kafka failed or ran out of its time
│  └─ MessageTooLargeError  it refused a message for its size, and would again
├─ MessageError             an event that can't be read, now or ever
├─ AnswerError              a model's answer that can't be used
├─ MissingDocumentError     a document that should be there is not readable (yet)
├─ UnauthenticatedError     who asks has not shown who it is; the message says what to do
├─ ForbiddenError           who asks may not do that, or not there
├─ UnscopedReadError        a read names neither a user nor a visibility
├─ TooOftenError            too many in a span of time; it says how long to wait
│  └─ QuotaExceededError    a project has stored what it may store in a day
├─ AccountError             what can't be done with a service account; it says what can
├─ LetterError              what can't be done with a dead letter; it says why and what can
├─ NotHeldError             nothing of that name is held back; it says so
├─ JobError                 what can't be done with a job; it says why and what can
├─ PartEndedError           a part of the process ended that must last as long as it
└─ ConfigurationError       the process must not start like this
   └─ SettingsUnreadableError  what is stored of a project's settings can't be read
"""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.failure import FailureClass


class AfterturnError(Exception):
    """Something Afterturn refuses or could not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One rule that an input breaks."""

    field: str
    rule: str


class InvalidInputError(AfterturnError):
    """An input breaks rules; the message names them and never repeats what was said."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{problem.field}: {problem.rule}" for problem in problems))


class UnknownMemoryError(AfterturnError):
    """No memory of that id is in the scope; whether it exists elsewhere is not told."""


class UnsupportedError(AfterturnError):
    """A call can't be answered for whom it comes from; the message says when it could."""


class UnknownTypeError(AfterturnError):
    """A project declares no custom type of that name; the message has those it declares."""

    def __init__(self, declared: Sequence[str]) -> None:
        known = ", ".join(declared) or "none"
        super().__init__(f"unknown custom memory type: the project declares {known}")


class FilterError(AfterturnError):
    """A metadata filter that can't be answered; the message says what can, and quotes nothing."""


class ConflictError(AfterturnError):
    """The idempotency key belongs to another turn of this session."""


class RecordingUnavailableError(AfterturnError):
    """The turn was not stored, or that is unknown; trying again with the same key is safe."""


class BrokerUnavailableError(AfterturnError):
    """Kafka did not acknowledge in time. What was to be published is found and sent later."""


class MessageTooLargeError(BrokerUnavailableError):
    """Kafka takes no message of this size; sent as it is, it is refused every time."""


class MessageError(AfterturnError):
    """An event that can't be read; `failure_class` is `content.*`."""

    def __init__(self, failure_class: FailureClass, reason: str) -> None:
        self.failure_class = failure_class
        self.reason = reason
        super().__init__(reason)


class AnswerError(AfterturnError):
    """A model's answer that can't be used; it never holds the answer's words."""

    def __init__(
        self,
        failure_class: FailureClass,
        reason: str,
        *,
        finish_reason: str | None = None,
        request_id: str | None = None,
        calls: int = 1,
        prompt_tokens: int | None = None,
        completion_tokens: int | None = None,
    ) -> None:
        self.failure_class = failure_class
        self.reason = reason
        self.finish_reason = finish_reason
        self.request_id = request_id
        self.calls = calls
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        super().__init__(reason)


class MissingDocumentError(AfterturnError):
    """A document that a message names is not readable."""


class UnauthenticatedError(AfterturnError):
    """Who asks has not shown who it is; the message holds nothing of what was sent."""


class ForbiddenError(AfterturnError):
    """Who asks is known and may not do that, or not in that project or organization."""


class UnscopedReadError(AfterturnError):
    """A read that names neither a user nor a visibility would reach across both."""


class TooOftenError(AfterturnError):
    """It was one too many."""

    def __init__(self, message: str, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        super().__init__(message)


class QuotaExceededError(TooOftenError):
    """A project has stored what it may store in a day."""


class AccountError(AfterturnError):
    """What was asked of a service account can't be done; the message says what can."""


class LetterError(AfterturnError):
    """What was asked of a dead letter can't be done; the message says why, and what can."""


class NotHeldError(AfterturnError):
    """Nothing of that name is held back; the message says what to do instead."""


class JobError(AfterturnError):
    """What was asked of a job can't be done; the message says why, and what can."""


class PartEndedError(AfterturnError):
    """A part of the process ended that must last as long as it; the process is of no use now."""


class ConfigurationError(AfterturnError):
    """What is configured can't work; the message says what to change."""


class SettingsUnreadableError(ConfigurationError):
    """What is stored of a project's settings can't be read; the message says where it is."""
