"""The one classifier: every error has a class, and nothing said is kept of any."""

import asyncio
import inspect
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiokafka.errors
import httpx2
import openai
import pymongo.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipeline.errors
from pipeline.errors import (
    AnswerError,
    BrokerUnavailableError,
    ConfigurationError,
    MessageError,
    MessageTooLargeError,
    MissingDocumentError,
    RecordingUnavailableError,
    SettingsUnreadableError,
)
from pipeline.failing.failures import action, classify, fingerprint, is_infrastructure, token
from pipeline.failing.reasons import CLASS_ACTIONS, REASON_ACTIONS, Reason, remedy
from schemas.failure import Failure, FailureClass

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CANARY = "CANARY-4410 is what somebody said"


def response(status: int, **headers: str) -> httpx2.Response:
    """Return an answer of a vendor's."""
    request = httpx2.Request("POST", "http://127.0.0.1/v1/chat/completions", content=CANARY)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, headers=named, request=request)


def status_error(status: int, body: object = None, **headers: str) -> openai.APIStatusError:
    """Return what the vendor's client raises."""
    return openai.APIStatusError(CANARY, response=response(status, **headers), body=body)


def caused(error: Exception, cause: BaseException) -> Exception:
    """Return an error with its cause."""
    error.__cause__ = cause
    return error


REQUEST = httpx2.Request("POST", "http://127.0.0.1")
TRANSPORT: list[tuple[Exception, FailureClass]] = [
    (openai.APIConnectionError(request=REQUEST), FailureClass.NETWORK),
    (openai.APITimeoutError(REQUEST), FailureClass.TIMEOUT),
    (
        caused(openai.APITimeoutError(REQUEST), httpx2.ConnectTimeout("x")),
        FailureClass.NETWORK,
    ),
    (caused(openai.APITimeoutError(REQUEST), httpx2.ReadTimeout("x")), FailureClass.TIMEOUT),
    (caused(openai.APITimeoutError(REQUEST), httpx2.PoolTimeout("x")), FailureClass.NETWORK),
    (httpx2.ReadTimeout("x"), FailureClass.TIMEOUT),
    (httpx2.ConnectError("x"), FailureClass.NETWORK),
    (httpx2.RemoteProtocolError("x"), FailureClass.NETWORK),
    (httpx2.WriteError("x"), FailureClass.NETWORK),
    (httpx2.DecodingError("x"), FailureClass.UNAVAILABLE),
    (
        openai.APIResponseValidationError(response(200), body=None),
        FailureClass.UNAVAILABLE,
    ),
    (TimeoutError(), FailureClass.TIMEOUT),
    (TimeoutError(110, "connect"), FailureClass.NETWORK),
    (ConnectionResetError(), FailureClass.NETWORK),
    (ssl.SSLError(), FailureClass.NETWORK),
    (socket.gaierror(-2, "no such name"), FailureClass.NETWORK),
    (FileNotFoundError(), FailureClass.UNCLASSIFIED),
]


@pytest.mark.parametrize(("error", "failure_class"), TRANSPORT)
def test_a_connection_is_the_network_and_silence_a_timeout(
    error: Exception, failure_class: FailureClass
) -> None:
    """No connection in time is not the same as no answer in time."""
    assert classify(error).failure_class is failure_class


VENDOR: list[tuple[Exception, FailureClass, Reason]] = [
    (
        status_error(429, {"type": "insufficient_quota"}),
        FailureClass.QUOTA,
        Reason.INSUFFICIENT_QUOTA,
    ),
    (
        status_error(403, {"code": "model_not_found"}),
        FailureClass.MODEL_UNKNOWN,
        Reason.MODEL_NOT_FOUND,
    ),
    (
        status_error(400, {"code": 400, "type": "exceed_context_size_error"}),
        FailureClass.CONTEXT_LENGTH,
        Reason.CONTEXT_LENGTH_EXCEEDED,
    ),
    (
        status_error(400, {"param": "temperature"}),
        FailureClass.PARAMETER_UNKNOWN,
        Reason.PARAMETER_REFUSED,
    ),
    (
        status_error(400, {"param": "max_tokens"}),
        FailureClass.CONTEXT_LENGTH,
        Reason.CONTEXT_LENGTH_EXCEEDED,
    ),
    (status_error(400, {"param": "messages"}), FailureClass.BAD_REQUEST, Reason.HTTP_400),
    (
        status_error(500, {"code": "context_length_exceeded"}),
        FailureClass.UNAVAILABLE,
        Reason.HTTP_500,
    ),
    (status_error(302), FailureClass.UNAVAILABLE, Reason.HTTP_OTHER),
]


@pytest.mark.parametrize(("error", "failure_class", "reason"), VENDOR)
def test_what_a_vendor_says_in_codes_goes_before_the_status(
    error: Exception, failure_class: FailureClass, reason: Reason
) -> None:
    """Where the status says that the request is at fault; never where the server is."""
    failure = classify(error)

    assert (failure.failure_class, failure.reason) == (failure_class, reason)


def test_a_message_decides_nothing() -> None:
    """Whatever words a vendor chooses."""
    error = openai.APIStatusError("context_length_exceeded", response=response(503), body=None)

    assert classify(error).failure_class is FailureClass.UNAVAILABLE


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "1500", "retry_after": "2"}, 1.5),
        ({"retry_after": format_datetime(NOW + timedelta(seconds=90), usegmt=True)}, 90.0),
        ({"retry_after": format_datetime(NOW - timedelta(seconds=90), usegmt=True)}, 0.0),
        (
            {
                "retry_after": format_datetime(NOW + timedelta(hours=5, seconds=30), usegmt=True),
                "date": format_datetime(NOW + timedelta(hours=5), usegmt=True),
            },
            30.0,
        ),
        ({"retry_after": "Sun, 01 Mar 2026 12:00:30 -0000"}, 30.0),
        ({"retry_after": "-3"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": ""}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    """By the other side's clock where it tells its time; nonsense is no request to wait."""
    assert classify(status_error(429, None, **headers), now=NOW).retry_after_seconds == seconds


def test_a_request_id_is_kept_if_it_can_be_nothing_but_one() -> None:
    """A header is the other side's word, and goes into records of ours."""
    assert classify(status_error(500, x_request_id="req_1-a.b")).request_id == "req_1-a.b"
    assert classify(status_error(500, request_id="req_2")).request_id == "req_2"
    assert classify(status_error(500, x_request_id=CANARY)).request_id is None
    assert token("x" * 129) is None


STORES: list[tuple[Exception, bool]] = [
    (pymongo.errors.ServerSelectionTimeoutError(CANARY), True),
    (pymongo.errors.NetworkTimeout(CANARY), True),
    (pymongo.errors.NotPrimaryError(CANARY), True),
    (pymongo.errors.WTimeoutError(CANARY), True),
    (pymongo.errors.ExecutionTimeout(CANARY), True),
    (pymongo.errors.OperationFailure(CANARY, 13), True),
    (pymongo.errors.DuplicateKeyError(CANARY, 11000), False),
    (pymongo.errors.WriteError(CANARY, 121), False),
    (
        pymongo.errors.WriteError(CANARY, 91, {"errorLabels": ["RetryableWriteError"]}),
        True,
    ),
    (pymongo.errors.BulkWriteError({"writeErrors": [{"code": 121, "errmsg": CANARY}]}), False),
    (pymongo.errors.BulkWriteError({"writeConcernErrors": [{"code": 64}]}), True),
    (pymongo.errors.DocumentTooLarge(CANARY), False),
    (aiokafka.errors.KafkaConnectionError(CANARY), True),
    (aiokafka.errors.KafkaTimeoutError(CANARY), True),
    (aiokafka.errors.TopicAuthorizationFailedError(CANARY), True),
    (aiokafka.errors.MessageSizeTooLargeError(CANARY), False),
    (BrokerUnavailableError(CANARY), True),
    (MessageTooLargeError(CANARY), False),
    (RecordingUnavailableError(CANARY), True),
    (caused(RuntimeError(CANARY), pymongo.errors.AutoReconnect(CANARY)), True),
    (ExceptionGroup("g", [KeyError("k"), pymongo.errors.AutoReconnect(CANARY)]), True),
    (KeyError(CANARY), False),
    (status_error(500), False),
]


@pytest.mark.parametrize(("error", "holds"), STORES)
def test_no_message_is_at_fault_when_a_store_is_away(error: Exception, holds: bool) -> None:
    """What is written can be at fault, where it is written can not."""
    assert is_infrastructure(error) is holds


def test_our_own_errors_bring_their_class() -> None:
    """Each with its code."""
    answer = AnswerError(FailureClass.REFUSED, Reason.REFUSAL, request_id="req_1")
    cases = {
        answer: (FailureClass.REFUSED, Reason.REFUSAL),
        MessageError(FailureClass.UNDECODABLE, "not_json"): (FailureClass.UNDECODABLE, "not_json"),
        MissingDocumentError("x"): (FailureClass.MISSING, Reason.DOCUMENT_MISSING),
        SettingsUnreadableError("x"): (
            FailureClass.PARAMETER_UNKNOWN,
            Reason.SETTINGS_UNREADABLE,
        ),
        ConfigurationError("x"): (FailureClass.PARAMETER_UNKNOWN, Reason.MISCONFIGURED),
    }

    for error, expected in cases.items():
        failure = classify(error)
        assert (failure.failure_class, failure.reason) == expected
    assert classify(answer).request_id == "req_1"


def in_our_code(error: Exception) -> Failure:
    """Return the failure of an error that a function of ours raised."""
    namespace: dict[str, Callable[[], None]] = {}
    source = "def step():\n    inner()\ndef inner():\n    raise error"
    exec(source, {"__name__": "pipeline.steps", "error": error}, namespace)  # noqa: S102
    namespace["step"].__globals__.update(namespace)
    with pytest.raises(type(error)) as raised:
        namespace["step"]()
    return classify(raised.value)


def test_a_bug_is_known_by_our_innermost_frame() -> None:
    """And by its type; never by what it says."""
    failure = in_our_code(KeyError(CANARY))

    assert failure.failure_class is FailureClass.UNCLASSIFIED
    assert failure.exception == "KeyError"
    assert failure.frame == "pipeline.steps:inner"
    assert classify(KeyError(CANARY)).frame is None


def test_a_fingerprint_is_of_the_cause_and_not_of_the_case() -> None:
    """The same bug with other words is the same; another place, type or code is another."""
    bug = in_our_code(KeyError("one"))

    assert fingerprint(bug) == fingerprint(in_our_code(KeyError("two")))
    assert fingerprint(bug) == fingerprint(bug.model_copy(update={"request_id": "r"}))
    for change in (
        {"frame": "pipeline.steps:other"},
        {"exception": "ValueError"},
        {"reason": "http_500"},
        {"failure_class": FailureClass.NETWORK},
    ):
        assert fingerprint(bug.model_copy(update=change)) != fingerprint(bug)


@pytest.mark.parametrize("stop", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit()])
def test_being_stopped_is_no_failure(stop: BaseException) -> None:
    """It is raised again, so that nobody records or retries it."""
    with pytest.raises(type(stop)):
        classify(stop)


def test_causes_that_go_in_a_circle_end() -> None:
    """A loop of causes is walked once."""
    first, second = KeyError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first

    assert classify(first).failure_class is FailureClass.UNCLASSIFIED


def test_every_reason_and_every_class_has_an_action() -> None:
    """A sentence that says what to do."""
    assert set(REASON_ACTIONS) == set(Reason)
    assert set(CLASS_ACTIONS) == set(FailureClass)
    for sentence in (*REASON_ACTIONS.values(), *CLASS_ACTIONS.values()):
        assert sentence.endswith(".")


def test_an_action_goes_by_the_reason_and_else_by_the_class() -> None:
    """What decodes messages has codes of its own."""
    known = Failure(
        failure_class=FailureClass.QUOTA, reason=Reason.HTTP_402, exception="openai.APIStatusError"
    )
    other = known.model_copy(update={"reason": "some_code"})

    assert action(known) == REASON_ACTIONS[Reason.HTTP_402]
    assert action(other) == CLASS_ACTIONS[FailureClass.QUOTA]


def test_a_remedy_tells_of_no_redrive_for_what_goes_on_by_itself() -> None:
    """Only a letter needs one; and what is no reason of ours has none."""
    assert remedy(Reason.HTTP_401) == "Replace the model's API key."
    assert remedy(Reason.MODEL_NOT_FOUND) == REASON_ACTIONS[Reason.MODEL_NOT_FOUND]
    assert remedy("some_code") is None


ERRORS = [
    *(error for error, _ in TRANSPORT),
    *(error for error, _, _ in VENDOR),
    *(error for error, _ in STORES),
]


@pytest.mark.parametrize("error", ERRORS)
def test_nothing_said_is_kept(error: Exception) -> None:
    """I11: no word of a message, a body or a request."""
    assert "CANARY" not in classify(error).model_dump_json()


@given(
    st.integers(100, 999), st.dictionaries(st.sampled_from(["code", "type", "param"]), st.text())
)
def test_every_status_has_a_class(status: int, body: dict[str, str]) -> None:
    """And none is a bug of ours."""
    failure = classify(status_error(status, body))

    assert failure.failure_class is not FailureClass.UNCLASSIFIED
    assert failure.reason in set(Reason)


def test_every_error_of_ours_is_considered() -> None:
    """An error added to the tree without a class here would pass for a bug."""
    unexpected_in_a_step = {
        *("AfterturnError", "InvalidInputError", "ConflictError", "PartEndedError"),
        *("FilterError", "UnknownMemoryError", "UnknownTypeError", "UnsupportedError"),
        *(
            "ForbiddenError",
            "UnscopedReadError",
            "UnauthenticatedError",
            "AccountError",
            "LetterError",
            "JobError",
            "NotHeldError",
        ),
        *("TooOftenError", "QuotaExceededError"),
    }
    classified = {
        "AnswerError",
        "MessageError",
        "MissingDocumentError",
        "BrokerUnavailableError",
        "MessageTooLargeError",
        "RecordingUnavailableError",
        "ConfigurationError",
        "SettingsUnreadableError",
    }

    assert {
        name
        for name, kind in inspect.getmembers(pipeline.errors, inspect.isclass)
        if issubclass(kind, Exception)
    } == unexpected_in_a_step | classified
