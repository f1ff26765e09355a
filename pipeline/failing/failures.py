"""The one place that decides whose fault a failure is.

It goes by types, status codes, error codes and labels, never by message text, and keeps no word
of an error's message: what comes out may be stored, logged and shown (I11).

Types are told by name, so that a process that never calls a model does not pay for importing one:
an error of a library that is not loaded cannot occur. Tests raise the real ones.
"""

import hashlib
import math
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from json import JSONDecodeError
from typing import Any, Final, cast

from pipeline.errors import (
    AfterturnError,
    AnswerError,
    BrokerUnavailableError,
    ConfigurationError,
    MessageError,
    MessageTooLargeError,
    MissingDocumentError,
    RecordingUnavailableError,
    SettingsUnreadableError,
)
from pipeline.extracting.unchecked import field_of, list_of, object_of, text_of
from pipeline.failing.reasons import CLASS_ACTIONS, REASON_ACTIONS, Reason
from schemas.failure import Failure, FailureClass

OUR_PACKAGES: Final = frozenset(
    {"schemas", "pipeline", "producers", "consumers", "api", "cli", "compose"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    failure_class: FailureClass
    reason: str
    retry_after_seconds: float | None = None
    request_id: str | None = None
    finish_reason: str | None = None


def classify(error: BaseException, *, now: datetime | None = None) -> Failure:
    """Return what is kept of an error.

    Args:
        error: What an attempt raised. Its causes are looked at, outermost first.
        now: What a `Retry-After` date is measured from where the answer names no `Date`.

    Raises:
        BaseException: A cancellation or an exit is no failure and is raised again.
    """
    if not isinstance(error, Exception):
        raise error
    moment = now or datetime.now(UTC)
    for link in _chain(error):
        verdict = _judge(link, moment)
        if verdict is not None:
            return _failure(verdict, link, error)
    unclassified = _Verdict(failure_class=FailureClass.UNCLASSIFIED, reason=Reason.UNCLASSIFIED)
    return _failure(unclassified, _root(error), error)


def is_infrastructure(error: Exception) -> bool:
    """Return whether no message is at fault, so that its fate can only wait: hold in place."""
    return classify(error).failure_class is FailureClass.FATE_UNWRITTEN


def fingerprint(failure: Failure) -> str:
    """Return what failures of one cause have in common, as 16 hexadecimal digits."""
    parts = (failure.failure_class, failure.reason, failure.exception, failure.frame or "")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def action(failure: Failure) -> str:
    """Return what an operator should do, in a sentence."""
    for reason in Reason:
        if reason == failure.reason:
            return REASON_ACTIONS[reason]
    return CLASS_ACTIONS[failure.failure_class]


def token(value: object) -> str | None:
    """Return a code that another side gave us, if it can be nothing but a code."""
    return value if isinstance(value, str) and _TOKEN.fullmatch(value) else None


_TOKEN: Final = re.compile(r"[A-Za-z0-9._:/@+-]{1,128}")


# --- the chain of causes -------------------------------------------------------------------------


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes, and the members of a group, each once."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(cast("BaseExceptionGroup[BaseException]", link).exceptions)
        if link.__cause__ is not None:
            waiting.append(link.__cause__)


def _root(error: BaseException) -> BaseException:
    *_, innermost = _chain(error)
    return innermost


def _failure(verdict: _Verdict, link: BaseException, error: BaseException) -> Failure:
    return Failure(
        failure_class=verdict.failure_class,
        reason=verdict.reason,
        exception=_qualified(type(link)),
        retry_after_seconds=verdict.retry_after_seconds,
        request_id=verdict.request_id,
        finish_reason=verdict.finish_reason,
        frame=our_frame(error),
    )


def _qualified(kind: type) -> str:
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def our_frame(error: BaseException) -> str | None:
    """Return `module:function` of our innermost frame, the innermost error's first."""
    for link in reversed(list(_chain(error))):
        frame: str | None = None
        trace = link.__traceback__
        while trace is not None:
            module = str(trace.tb_frame.f_globals.get("__name__", ""))
            if module.partition(".")[0] in OUR_PACKAGES:
                frame = f"{module}:{trace.tb_frame.f_code.co_qualname}"
            trace = trace.tb_next
        if frame is not None:
            return frame
    return None


def _names(error: BaseException | None) -> frozenset[str]:
    """Return an error's types as `package.Name`, whatever module they are defined in."""
    if error is None:
        return frozenset()
    return frozenset(
        f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__
    )


# --- the rules -----------------------------------------------------------------------------------


def _judge(error: BaseException, now: datetime) -> _Verdict | None:
    for rule in _RULES:
        verdict = rule(error, now)
        if verdict is not None:
            return verdict
    return None


def _ours(error: BaseException, _now: datetime) -> _Verdict | None:
    if isinstance(error, AnswerError):
        return _Verdict(
            failure_class=error.failure_class,
            reason=error.reason,
            request_id=token(error.request_id),
            finish_reason=token(error.finish_reason),
        )
    if isinstance(error, MessageError):
        return _Verdict(failure_class=error.failure_class, reason=error.reason)
    for kind, verdict in _OF_OURS.items():
        if isinstance(error, kind):
            return verdict
    return None


def _held(reason: Reason) -> _Verdict:
    return _Verdict(failure_class=FailureClass.FATE_UNWRITTEN, reason=reason)


_OF_OURS: Final[dict[type[AfterturnError], _Verdict]] = {
    MissingDocumentError: _Verdict(
        failure_class=FailureClass.MISSING, reason=Reason.DOCUMENT_MISSING
    ),
    # Before what it is a kind of: waiting makes no message smaller.
    MessageTooLargeError: _Verdict(
        failure_class=FailureClass.UNCLASSIFIED, reason=Reason.UNCLASSIFIED
    ),
    BrokerUnavailableError: _held(Reason.BROKER_UNAVAILABLE),
    RecordingUnavailableError: _held(Reason.DATABASE_UNAVAILABLE),
    # Before what it is a kind of.
    SettingsUnreadableError: _Verdict(
        failure_class=FailureClass.PARAMETER_UNKNOWN, reason=Reason.SETTINGS_UNREADABLE
    ),
    ConfigurationError: _Verdict(
        failure_class=FailureClass.PARAMETER_UNKNOWN, reason=Reason.MISCONFIGURED
    ),
}

_OF_THE_DATA: Final = frozenset(
    {
        "pymongo.WriteError",
        "pymongo.BulkWriteError",
        "pymongo.ClientBulkWriteException",
        "pymongo.InvalidOperation",
        "pymongo.InvalidName",
        "pymongo.CollectionInvalid",
        "pymongo.DocumentTooLarge",
        "aiokafka.MessageSizeTooLargeError",
        "aiokafka.RecordTooLargeError",
        "aiokafka.IllegalArgumentError",
    }
)
"""Errors of the drivers that come of what is written, not of where; waiting mends none of them."""


def _drivers(error: BaseException, _now: datetime) -> _Verdict | None:
    names = _names(error)
    labelled = getattr(error, "has_error_label", None)
    is_passing = labelled is not None and labelled("RetryableWriteError")
    if names & _OF_THE_DATA and _blames_the_data(error) and not is_passing:
        return None
    if "pymongo.PyMongoError" in names:
        return _held(Reason.DATABASE_UNAVAILABLE)
    if "aiokafka.KafkaError" in names:
        return _held(Reason.BROKER_UNAVAILABLE)
    return None


def _blames_the_data(error: BaseException) -> bool:
    """Tell a bulk that was refused from one that a majority has not got yet."""
    if "pymongo.BulkWriteError" not in _names(error):
        return True
    details: Mapping[str, object] = getattr(error, "details", None) or {}
    return bool(details.get("writeErrors"))


_CLASSES_BY_CODE: Final[dict[str, tuple[FailureClass, Reason]]] = {
    **dict.fromkeys(
        (
            *("insufficient_quota", "billing_hard_limit_reached", "billing_not_active"),
            *("billing_error", "enforced_spend_limit_reached", "contract_spend_limit_reached"),
            "linked_organization_spend_limit_reached",
            "linked_organization_billing_unavailable",
        ),
        (FailureClass.QUOTA, Reason.INSUFFICIENT_QUOTA),
    ),
    **dict.fromkeys(
        ("API_KEY_INVALID", "API_KEY_EXPIRED"), (FailureClass.CREDENTIALS, Reason.HTTP_401)
    ),
    **dict.fromkeys(
        ("model_not_found", "model_not_available", "DeploymentNotFound"),
        (FailureClass.MODEL_UNKNOWN, Reason.MODEL_NOT_FOUND),
    ),
    **dict.fromkeys(
        ("unknown_parameter", "unsupported_parameter", "unsupported_value"),
        (FailureClass.PARAMETER_UNKNOWN, Reason.PARAMETER_REFUSED),
    ),
    **dict.fromkeys(
        ("context_length_exceeded", "string_above_max_length", "exceed_context_size_error"),
        (FailureClass.CONTEXT_LENGTH, Reason.CONTEXT_LENGTH_EXCEEDED),
    ),
    **dict.fromkeys(
        ("content_filter", "content_policy_violation", "invalid_prompt"),
        (FailureClass.FILTERED, Reason.CONTENT_FILTER),
    ),
}
"""What vendors say of an error with a 4xx status, in whatever they have for a code."""

_CLASSES_BY_STATUS: Final[dict[int, tuple[FailureClass, Reason]]] = {
    400: (FailureClass.BAD_REQUEST, Reason.HTTP_400),
    401: (FailureClass.CREDENTIALS, Reason.HTTP_401),
    402: (FailureClass.QUOTA, Reason.HTTP_402),
    403: (FailureClass.CREDENTIALS, Reason.HTTP_403),
    404: (FailureClass.MODEL_UNKNOWN, Reason.HTTP_404),
    405: (FailureClass.MODEL_UNKNOWN, Reason.NO_SUCH_ROUTE),
    408: (FailureClass.UNAVAILABLE, Reason.HTTP_408),
    409: (FailureClass.UNAVAILABLE, Reason.HTTP_409),
    410: (FailureClass.MODEL_UNKNOWN, Reason.NO_SUCH_ROUTE),
    # "Content Too Large" asks for a smaller request, which is what a split makes of it.
    413: (FailureClass.CONTEXT_LENGTH, Reason.HTTP_413),
    422: (FailureClass.BAD_REQUEST, Reason.HTTP_422),
    429: (FailureClass.RATE_LIMITED, Reason.HTTP_429),
    500: (FailureClass.UNAVAILABLE, Reason.HTTP_500),
    502: (FailureClass.UNAVAILABLE, Reason.HTTP_502),
    503: (FailureClass.UNAVAILABLE, Reason.HTTP_503),
    504: (FailureClass.UNAVAILABLE, Reason.HTTP_504),
    529: (FailureClass.UNAVAILABLE, Reason.HTTP_529),
}

_VENDORS: Final = ("openai.", "anthropic.")
_STATUS_ERRORS: Final = frozenset(
    {
        *("openai.APIStatusError", "anthropic.APIStatusError", "google.APIError"),
        "httpx2.HTTPStatusError",
    }
)
_SERVER_ERROR: Final = 500
_OURS_FOR_EVERYONE: Final = frozenset(
    {"model", "temperature", "tools", "tool_choice", "dimensions", "encoding_format"}
)
"""Parameters that are the same in every request: refused for one is refused for all."""


def _vendor_status(error: BaseException, now: datetime) -> _Verdict | None:
    names = _names(error)
    if not names & _STATUS_ERRORS:
        return None
    # Google's `code` is the status; what it says more is in the details of the body.
    is_google = "google.APIError" in names
    details = _google_details(error) if is_google else []
    # httpx's own error has it in the response only.
    response = getattr(error, "response", None)
    status = getattr(error, "code", None) if is_google else getattr(response, "status_code", None)
    codes = (
        [detail.get("reason") for detail in details] + _google_quotas(details)
        if is_google
        else [getattr(error, name, None) for name in ("code", "error_code", "type")]
    )
    failure_class, reason = _of_status(status if isinstance(status, int) else 0, codes, error)
    headers: Any = getattr(response, "headers", {})
    waits = [_retry_after(headers, now), *(_google_delay(detail) for detail in details)]
    return _Verdict(
        failure_class=failure_class,
        reason=reason,
        retry_after_seconds=next((wait for wait in waits if wait is not None), None),
        request_id=token(headers.get("x-request-id")) or token(headers.get("request-id")),
    )


def _google_details(error: BaseException) -> list[dict[str, Any]]:
    """Return the machine-readable details of an error.

    Source: google.rpc.Status and google/rpc/error_details.proto, in JSON.
    """
    said = field_of(getattr(error, "details", None), "error")
    return [object_of(detail) for detail in list_of(field_of(said, "details"))]


def _google_quotas(details: list[dict[str, Any]]) -> list[str]:
    """Return the code of a spent quota for each that is counted by the day."""
    violations = (
        violation for detail in details for violation in list_of(detail.get("violations"))
    )
    ids = (text_of(field_of(violation, "quotaId")) for violation in violations)
    return ["insufficient_quota" for quota in ids if "PerDay" in quota]


def _google_delay(detail: dict[str, Any]) -> float | None:
    """Return the delay of a `RetryInfo`, in seconds: a protobuf duration such as `37s`."""
    delay = detail.get("retryDelay")
    return _number(delay[:-1]) if isinstance(delay, str) and delay.endswith("s") else None


def _of_status(
    status: int, codes: Sequence[object], error: BaseException
) -> tuple[FailureClass, Reason]:
    if status < _SERVER_ERROR:
        for said in codes:
            if isinstance(said, str) and said in _CLASSES_BY_CODE:
                return _CLASSES_BY_CODE[said]
        if status == 400:  # noqa: PLR2004
            parameter = str(getattr(error, "param", None))
            if parameter in _OURS_FOR_EVERYONE:
                return FailureClass.PARAMETER_UNKNOWN, Reason.PARAMETER_REFUSED
            if parameter in {"max_tokens", "max_completion_tokens"}:
                return FailureClass.CONTEXT_LENGTH, Reason.CONTEXT_LENGTH_EXCEEDED
    if status in _CLASSES_BY_STATUS:
        return _CLASSES_BY_STATUS[status]
    if status >= _SERVER_ERROR:
        return FailureClass.UNAVAILABLE, Reason.HTTP_5XX
    # Nothing in an unknown status says that this request is at fault: wait, and end as `exhausted`.
    return FailureClass.UNAVAILABLE, Reason.HTTP_OTHER


def _retry_after(headers: Any, now: datetime) -> float | None:
    """Return what a response asks us to wait.

    Units: seconds.
    Source: RFC 9110, 10.2.3 (seconds or a date); `retry-after-ms` is OpenAI's.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    said = headers.get("retry-after")
    seconds = _number(said)
    if seconds is not None or said is None:
        return seconds
    until = _date(said)
    if until is None:
        return None
    return max(0.0, (until - (_date(headers.get("date")) or now)).total_seconds())


def _number(said: object) -> float | None:
    try:
        number = float(str(said))
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(said: object) -> datetime | None:
    try:
        date = parsedate_to_datetime(str(said))
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


_NETWORK: Final = _Verdict(failure_class=FailureClass.NETWORK, reason=Reason.CONNECTION)
_TIMEOUT: Final = _Verdict(failure_class=FailureClass.TIMEOUT, reason=Reason.NO_ANSWER_IN_TIME)
_NO_COMPLETION: Final = _Verdict(
    failure_class=FailureClass.UNAVAILABLE, reason=Reason.NOT_A_COMPLETION
)


_HTTP_PACKAGES: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2"})
_OF_TRANSPORT: Final[dict[str, _Verdict]] = {
    "ReadTimeout": _TIMEOUT,
    "TransportError": _NETWORK,
    "TimeoutException": _NETWORK,
    "NetworkError": _NETWORK,
    "ProtocolError": _NETWORK,
    "DecodingError": _NO_COMPLETION,
}
"""By the name of a transport's error; the first one that fits decides."""


def _vendor_connection(error: BaseException, now: datetime) -> _Verdict | None:
    names = {name.partition(".")[2] for name in _names(error) if name.startswith(_VENDORS)}
    if "APITimeoutError" in names:
        # No connection in time is the network's doing, no answer in time may be the request's.
        return _TIMEOUT if error.__cause__ is None else _transport(error.__cause__, now)
    if "APIConnectionError" in names:
        # What our own client refused to read is no fault of the network, and judges itself.
        return None if isinstance(error.__cause__, AnswerError) else _NETWORK
    return _NO_COMPLETION if "APIResponseValidationError" in names else None


def _transport(error: BaseException, _now: datetime) -> _Verdict | None:
    names = {
        name.partition(".")[2] for name in _names(error) if name.partition(".")[0] in _HTTP_PACKAGES
    }
    return next((_OF_TRANSPORT[name] for name in _OF_TRANSPORT if name in names), None)


def _system(error: BaseException, _now: datetime) -> _Verdict | None:
    if isinstance(error, TimeoutError):
        return _TIMEOUT if error.errno is None else _NETWORK
    if isinstance(error, ConnectionError | socket.gaierror | ssl.SSLError):
        return _NETWORK
    return None


def _instructor(error: BaseException, _now: datetime) -> _Verdict | None:
    """Judge what instructor itself made of an answer; vendor errors inside it judge themselves."""
    names = _names(error)
    if "instructor.IncompleteOutputException" in names:
        return _Verdict(failure_class=FailureClass.TRUNCATED, reason=Reason.FINISH_LENGTH)
    if "instructor.InstructorRetryException" in names:
        return _of_cause(error)
    return None


def _of_cause(error: BaseException) -> _Verdict | None:
    cause = error.__cause__
    failed: list[Any] = list(getattr(error, "failed_attempts", None) or ())
    if isinstance(cause, IndexError | TypeError) and failed:
        # Its re-ask stumbled over the missing choices; what it stumbled over is kept here only.
        return _Verdict(failure_class=FailureClass.UNAVAILABLE, reason=Reason.NO_CHOICES)
    if isinstance(cause, AssertionError) and not failed:
        return _Verdict(failure_class=FailureClass.REFUSED, reason=Reason.REFUSAL)
    if isinstance(cause, JSONDecodeError):
        return _NO_COMPLETION
    if _names(cause) & {"pydantic_core.ValidationError", "instructor.ResponseParsingError"}:
        return _of_answer(getattr(error, "last_completion", None))
    return None


def _of_answer(completion: Any) -> _Verdict:
    choices = getattr(completion, "choices", None)
    if not choices:
        return _NO_COMPLETION
    if getattr(choices[0], "finish_reason", None) == "content_filter":
        return _Verdict(failure_class=FailureClass.FILTERED, reason=Reason.CONTENT_FILTER)
    message = getattr(choices[0], "message", None)
    if getattr(message, "refusal", None):
        return _Verdict(failure_class=FailureClass.REFUSED, reason=Reason.REFUSAL)
    has_call = bool(getattr(message, "tool_calls", None))
    return _Verdict(
        failure_class=FailureClass.INVALID_OUTPUT,
        reason=Reason.WRONG_SHAPE if has_call else Reason.NO_TOOL_CALL,
    )


_RULES: Final[tuple[Callable[[BaseException, datetime], _Verdict | None], ...]] = (
    _ours,
    _drivers,
    _vendor_status,
    _vendor_connection,
    _transport,
    _system,
    _instructor,
)
