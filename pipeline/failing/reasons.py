"""Why things fail, as stable codes, and what an operator should do about each."""

from enum import StrEnum
from typing import Final

from schemas.failure import FailureClass


class Reason(StrEnum):
    """Stable codes of what went wrong; each has a recommended action.

    What decodes a message (`MessageError`) brings codes of its own.
    """

    CONNECTION = "connection"
    """Refused, reset, cut, DNS, TLS, or no connection in time."""
    NO_ANSWER_IN_TIME = "no_answer_in_time"
    TOO_SLOW = "too_slow"
    """No answer in time, again and again, while others get theirs."""
    HTTP_400 = "http_400"
    HTTP_401 = "http_401"
    HTTP_402 = "http_402"
    HTTP_403 = "http_403"
    HTTP_404 = "http_404"
    HTTP_408 = "http_408"
    HTTP_409 = "http_409"
    HTTP_413 = "http_413"
    HTTP_422 = "http_422"
    HTTP_429 = "http_429"
    HTTP_500 = "http_500"
    HTTP_502 = "http_502"
    HTTP_503 = "http_503"
    HTTP_504 = "http_504"
    HTTP_529 = "http_529"
    HTTP_5XX = "http_5xx"
    HTTP_OTHER = "http_other"
    INSUFFICIENT_QUOTA = "insufficient_quota"
    MODEL_NOT_FOUND = "model_not_found"
    NO_SUCH_ROUTE = "no_such_route"
    PARAMETER_REFUSED = "parameter_refused"
    MISCONFIGURED = "misconfigured"
    SECRET_MISSING = "secret_missing"  # noqa: S105 (a reason)
    """The variable that a project's key should be in holds nothing that can be one."""
    MODEL_NOT_NAMED = "model_not_named"
    """A project names a provider that is not the process's, and no model of it."""
    SETTINGS_UNREADABLE = "settings_unreadable"
    """What is stored of a project's settings was changed by other hands, or is gone."""
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    FINISH_LENGTH = "finish_length"
    """The answer ended because its tokens ran out."""
    FINISH_ERROR = "finish_error"
    """The other side says that it broke off."""
    NOT_A_COMPLETION = "not_a_completion"
    """Status 200, and neither JSON nor a completion: a proxy, a login page."""
    NO_CHOICES = "no_choices"
    NO_TOOL_CALL = "no_tool_call"
    TWO_TOOL_CALLS = "two_tool_calls"
    TWO_CHOICES = "two_choices"
    WRONG_TOOL = "wrong_tool"
    DUPLICATE_KEY = "duplicate_key"
    NOT_JSON = "not_json"
    WRONG_SHAPE = "wrong_shape"
    TOO_LARGE = "too_large"
    """More than any answer of the asked size can be."""
    ANSWER_TOO_LARGE = "answer_too_large"
    """So many bytes that it was not read to its end."""
    NO_VECTOR = "no_vector"
    """As many vectors as texts were asked for, and not so many came, or none that is one."""
    NOT_FINITE = "not_finite"
    """A vector holds what is no finite number."""
    ZERO_VECTOR = "zero_vector"
    """A vector without a direction."""
    WRONG_DIMENSION = "wrong_dimension"
    """A vector of another length than is configured."""
    DOCUMENT_MISSING = "document_missing"
    DATABASE_UNAVAILABLE = "database_unavailable"
    BROKER_UNAVAILABLE = "broker_unavailable"
    CRASH_LOOP = "crash_loop"
    UNCLASSIFIED = "unclassified"


CLASS_ACTIONS: Final[dict[FailureClass, str]] = {
    FailureClass.NETWORK: "Check that the model's address is reachable from here, then redrive.",
    FailureClass.UNAVAILABLE: "Wait until the model's service is well again, then redrive.",
    FailureClass.RATE_LIMITED: "Lower the permits or raise the vendor's limit, then redrive.",
    FailureClass.QUOTA: "Top up the account or raise its limit, then redrive.",
    FailureClass.CREDENTIALS: "Replace the model's API key, then redrive.",
    FailureClass.TIMEOUT: "Check the model's load, or allow it more time, then redrive.",
    FailureClass.MISSING: "Check that the database still holds the document, then redrive.",
    FailureClass.UNDECODABLE: "Look at the bytes and mend who sent them; then discard it.",
    FailureClass.UNKNOWN_VERSION: "Deploy the version that knows this event, then redrive.",
    FailureClass.BAD_REQUEST: "Look at the turns; redrive without the one that is refused.",
    FailureClass.CONTEXT_LENGTH: "Redrive with a model of a larger context, or without that turn.",
    FailureClass.REFUSED: "Redrive with another model or without that turn, or discard it.",
    FailureClass.FILTERED: "Redrive with another model or without that turn, or discard it.",
    FailureClass.TRUNCATED: "Redrive with more tokens for the answer, or with another model.",
    FailureClass.INVALID_OUTPUT: "Redrive with another model; if there are many, mend the prompt.",
    FailureClass.TOO_SLOW: "Redrive split, with a faster model, or with more time.",
    FailureClass.MODEL_UNKNOWN: "Set AFTERTURN_LLM__MODEL and AFTERTURN_LLM__BASE_URL rightly.",
    FailureClass.PARAMETER_UNKNOWN: "Change the setting that the model does not take.",
    FailureClass.UNCLASSIFIED: "Report the fingerprint; redrive once a version mends it.",
    FailureClass.CRASH_LOOP: "Find what kills the process (memory?); redrive once it is mended.",
    FailureClass.FATE_UNWRITTEN: "Bring MongoDB and Kafka back; the work goes on by itself.",
}

REASON_ACTIONS: Final[dict[Reason, str]] = {
    Reason.CONNECTION: CLASS_ACTIONS[FailureClass.NETWORK],
    Reason.NO_ANSWER_IN_TIME: CLASS_ACTIONS[FailureClass.TIMEOUT],
    Reason.TOO_SLOW: CLASS_ACTIONS[FailureClass.TOO_SLOW],
    Reason.HTTP_400: CLASS_ACTIONS[FailureClass.BAD_REQUEST],
    Reason.HTTP_401: CLASS_ACTIONS[FailureClass.CREDENTIALS],
    Reason.HTTP_402: CLASS_ACTIONS[FailureClass.QUOTA],
    Reason.HTTP_403: "Give the key access to the model, or replace it, then redrive.",
    Reason.HTTP_404: CLASS_ACTIONS[FailureClass.MODEL_UNKNOWN],
    Reason.HTTP_408: CLASS_ACTIONS[FailureClass.UNAVAILABLE],
    Reason.HTTP_409: CLASS_ACTIONS[FailureClass.UNAVAILABLE],
    Reason.HTTP_413: CLASS_ACTIONS[FailureClass.CONTEXT_LENGTH],
    Reason.HTTP_422: CLASS_ACTIONS[FailureClass.BAD_REQUEST],
    Reason.HTTP_429: CLASS_ACTIONS[FailureClass.RATE_LIMITED],
    Reason.HTTP_500: CLASS_ACTIONS[FailureClass.UNAVAILABLE],
    Reason.HTTP_502: "Check the proxy before the model and the model's service, then redrive.",
    Reason.HTTP_503: CLASS_ACTIONS[FailureClass.UNAVAILABLE],
    Reason.HTTP_504: "Check the proxy before the model and the model's service, then redrive.",
    Reason.HTTP_529: CLASS_ACTIONS[FailureClass.UNAVAILABLE],
    Reason.HTTP_5XX: CLASS_ACTIONS[FailureClass.UNAVAILABLE],
    Reason.HTTP_OTHER: "Look up the status in the vendor's documentation, then redrive.",
    Reason.INSUFFICIENT_QUOTA: CLASS_ACTIONS[FailureClass.QUOTA],
    Reason.MODEL_NOT_FOUND: "Set AFTERTURN_LLM__MODEL to a model that this key may use.",
    Reason.NO_SUCH_ROUTE: "Set AFTERTURN_LLM__BASE_URL to an OpenAI-compatible endpoint.",
    Reason.PARAMETER_REFUSED: (
        "Set what the model takes, e.g. AFTERTURN_LLM__TEMPERATURE=1 for a reasoning model."
    ),
    Reason.SECRET_MISSING: (
        "Set the variable that the project's extraction_llm.api_key_secret names (or its provider's"
        " own) where extraction runs, and start that again."
    ),
    Reason.MODEL_NOT_NAMED: (
        "Name extraction_llm.model in the project's settings; then `./afterturn memory configure`"
        " and `apply`."
    ),
    Reason.SETTINGS_UNREADABLE: (
        "Mend the project's document in `projects` or `project_revisions`, which `./afterturn"
        " memory status --project` names."
    ),
    Reason.MISCONFIGURED: "Run `./afterturn doctor` and change what it names.",
    Reason.CONTEXT_LENGTH_EXCEEDED: CLASS_ACTIONS[FailureClass.CONTEXT_LENGTH],
    Reason.CONTENT_FILTER: CLASS_ACTIONS[FailureClass.FILTERED],
    Reason.REFUSAL: CLASS_ACTIONS[FailureClass.REFUSED],
    Reason.FINISH_LENGTH: CLASS_ACTIONS[FailureClass.TRUNCATED],
    Reason.FINISH_ERROR: CLASS_ACTIONS[FailureClass.UNAVAILABLE],
    Reason.NOT_A_COMPLETION: (
        "See what AFTERTURN_LLM__BASE_URL really serves (a proxy's page?), then redrive."
    ),
    Reason.NO_CHOICES: CLASS_ACTIONS[FailureClass.UNAVAILABLE],
    Reason.NO_TOOL_CALL: "Use a model that can call tools, then redrive.",
    Reason.TWO_TOOL_CALLS: CLASS_ACTIONS[FailureClass.INVALID_OUTPUT],
    Reason.TWO_CHOICES: CLASS_ACTIONS[FailureClass.INVALID_OUTPUT],
    Reason.WRONG_TOOL: CLASS_ACTIONS[FailureClass.INVALID_OUTPUT],
    Reason.DUPLICATE_KEY: CLASS_ACTIONS[FailureClass.INVALID_OUTPUT],
    Reason.NOT_JSON: CLASS_ACTIONS[FailureClass.INVALID_OUTPUT],
    Reason.WRONG_SHAPE: CLASS_ACTIONS[FailureClass.INVALID_OUTPUT],
    Reason.TOO_LARGE: CLASS_ACTIONS[FailureClass.INVALID_OUTPUT],
    Reason.ANSWER_TOO_LARGE: (
        "See what AFTERTURN_LLM__BASE_URL really serves; it sent more than any answer can be."
    ),
    Reason.NO_VECTOR: CLASS_ACTIONS[FailureClass.INVALID_OUTPUT],
    Reason.NOT_FINITE: CLASS_ACTIONS[FailureClass.INVALID_OUTPUT],
    Reason.ZERO_VECTOR: CLASS_ACTIONS[FailureClass.INVALID_OUTPUT],
    Reason.WRONG_DIMENSION: (
        "Set AFTERTURN_EMBEDDING__DIMENSION to what the model makes, and run `./afterturn reembed`."
    ),
    Reason.DOCUMENT_MISSING: CLASS_ACTIONS[FailureClass.MISSING],
    Reason.DATABASE_UNAVAILABLE: "Bring MongoDB back; the work goes on by itself.",
    Reason.BROKER_UNAVAILABLE: "Bring Kafka back; the work goes on by itself.",
    Reason.CRASH_LOOP: CLASS_ACTIONS[FailureClass.CRASH_LOOP],
    Reason.UNCLASSIFIED: CLASS_ACTIONS[FailureClass.UNCLASSIFIED],
}


def remedy(reason: str) -> str | None:
    """Return what mends the cause of what goes on by itself then; none of a code unknown here.

    It is the action without the redrive, which only a letter needs.
    """
    for known in Reason:
        if known == reason:
            return REASON_ACTIONS[known].replace(", then redrive.", ".")
    return None
