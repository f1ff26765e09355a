"""What is counted and measured, in one typed list: names, meanings, and the values of each label.

Two laws. A label's values are a closed set of our own words: no id, no name, nothing that anybody
said (I11). And counting never changes what becomes of a message: what an exporter raises ends here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol, get_args

import structlog

from schemas.extraction import Outcome, Reply
from schemas.failure import FailureClass
from schemas.topics import Stage

Suppressed = Literal["stale", "settled", "held_by_another"]
"""Why a message needed no work: a newer ticket is live, all is done, or somebody is at it."""
SweepName = Literal[
    "open_turns",
    "unsettled_snapshots",
    "unsent_fates",
    "unsent_letters",
    "dirty_slots",
    "unannounced_records",
    "forgettings",
    "pending_embeddings",
]
Provider = Literal["openai", "openai_compatible", "anthropic", "gemini"]
EmbeddingOutcome = Literal["embedded", "refused", "dead"]
"""What a record ended as: with a vector for each text, without some, or with a letter."""
CallOutcome = Literal["answered", "reask", "cut_off"] | FailureClass
"""`reask`: invalid, and asked for again at once; `cut_off`: nobody waited for its end."""
Unkept = Literal["reask", "unusable", "cut_off", "superseded"]
"""Why an answer that may have been paid for was not kept."""
LoginResult = Literal["granted", "refused", "limited"]
Refusal = Literal["unauthenticated", "forbidden", "rate_limited", "quota_exceeded"]
"""Why a request got no further than signing in, or than what its project may store."""
BreakerState = Literal["closed", "open", "trying"]
GuardState = Literal["passing", "holding"]

_SUPPRESSED: Final[tuple[Suppressed, ...]] = get_args(Suppressed)
_SWEEPS: Final[tuple[SweepName, ...]] = get_args(SweepName)
_PROVIDERS: Final[tuple[Provider, ...]] = get_args(Provider)
_EMBEDDING_OUTCOMES: Final[tuple[EmbeddingOutcome, ...]] = get_args(EmbeddingOutcome)
_UNKEPT: Final[tuple[Unkept, ...]] = get_args(Unkept)
_LOGIN_RESULTS: Final[tuple[LoginResult, ...]] = get_args(LoginResult)
_REFUSALS: Final[tuple[Refusal, ...]] = get_args(Refusal)
_BREAKER_STATES: Final[tuple[BreakerState, ...]] = get_args(BreakerState)
_GUARD_STATES: Final[tuple[GuardState, ...]] = get_args(GuardState)
_CLASSES: Final = tuple(each.value for each in FailureClass)
_CALL_OUTCOMES: Final = ("answered", "reask", "cut_off", *_CLASSES)
_SUBSCRIPTIONS: Final = tuple(f"{stage}{kind}" for stage in Stage for kind in ("", ".retry"))
_DIRECTIONS: Final = ("prompt", "completion")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One thing that is counted or measured."""

    name: str
    """As it is exported; what counts ends in `_total`, what has a unit names it."""
    kind: Literal["counter", "gauge"]
    meaning: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Every value that each label may have."""


EXTRACTIONS_SETTLED: Final = Metric(
    name="afterturn_extractions_settled_total",
    kind="counter",
    meaning="Extractions that came to an outcome, in this process.",
    labels={"outcome": tuple(each.value for each in Outcome)},
)
ATTEMPTS_FAILED: Final = Metric(
    name="afterturn_attempts_failed_total",
    kind="counter",
    meaning="Failed attempts by class of failure, before what becomes of them is decided.",
    labels={"failure_class": _CLASSES},
)
DUPLICATES_SUPPRESSED: Final = Metric(
    name="afterturn_duplicates_suppressed_total",
    kind="counter",
    meaning="Messages that were taken without work, since the ledger says it is done or goes on.",
    labels={"cause": _SUPPRESSED},
)
HOLDS: Final = Metric(
    name="afterturn_holds_total",
    kind="counter",
    meaning="Times a message was held in place because its fate could not be written.",
    labels={"subscription": _SUBSCRIPTIONS},
)
MESSAGES_HELD: Final = Metric(
    name="afterturn_messages_held",
    kind="gauge",
    meaning="Messages held in place now.",
    labels={"subscription": _SUBSCRIPTIONS},
)
COMMITS_FAILED: Final = Metric(
    name="afterturn_commits_failed_total",
    kind="counter",
    meaning="Commits of offsets that Kafka did not take; what they held is delivered again.",
    labels={"subscription": _SUBSCRIPTIONS},
)
SWEEP_ITEMS: Final = Metric(
    name="afterturn_sweep_items_total",
    kind="counter",
    meaning="What the waker's sweeps found half done, by whether they could mend it.",
    labels={"sweep": _SWEEPS, "result": ("mended", "not_mended")},
)
MODEL_CALLS: Final = Metric(
    name="afterturn_model_calls_total",
    kind="counter",
    meaning="Requests to the model by what came of each.",
    labels={"provider": _PROVIDERS, "outcome": _CALL_OUTCOMES},
)
MODEL_TOKENS: Final = Metric(
    name="afterturn_model_tokens_total",
    kind="counter",
    meaning="Tokens the model says it used, kept answers or not.",
    labels={"provider": _PROVIDERS, "direction": _DIRECTIONS},
)
CALLS_UNKEPT: Final = Metric(
    name="afterturn_model_calls_unkept_total",
    kind="counter",
    meaning="Requests that may have been paid for and whose answer was not kept.",
    labels={"cause": _UNKEPT},
)
TOKENS_UNKEPT: Final = Metric(
    name="afterturn_model_tokens_unkept_total",
    kind="counter",
    meaning="Tokens of answers that were not kept; those of a re-ask count with its answer.",
    labels={"direction": _DIRECTIONS},
)
EMBEDDER_CALLS: Final = Metric(
    name="afterturn_embedder_calls_total",
    kind="counter",
    meaning="Requests for vectors by what came of each.",
    labels={"outcome": ("answered", *_CLASSES)},
)
RECORDS_EMBEDDED: Final = Metric(
    name="afterturn_records_embedded_total",
    kind="counter",
    meaning="Records and turns that came to an end of their embedding, in this process.",
    labels={"outcome": _EMBEDDING_OUTCOMES},
)
OPEN_TURN_AGE: Final = Metric(
    name="afterturn_open_turn_age_seconds",
    kind="gauge",
    meaning="How long the oldest open turn has been recorded; 0 where none is open.",
)
LETTERS: Final = Metric(
    name="afterturn_letters",
    kind="gauge",
    meaning="Dead letters that nobody has dealt with.",
    labels={"failure_class": _CLASSES},
)
LETTER_AGE: Final = Metric(
    name="afterturn_letter_age_seconds",
    kind="gauge",
    meaning="How old the oldest of them is; 0 where there is none.",
)
MEASURED_AT: Final = Metric(
    name="afterturn_measured_timestamp_seconds",
    kind="gauge",
    meaning="When open turns and letters were last read from MongoDB.",
)
BREAKERS: Final = Metric(
    name="afterturn_breakers",
    kind="gauge",
    meaning="Targets by the state of their breaker.",
    labels={"state": _BREAKER_STATES},
)
GUARDS: Final = Metric(
    name="afterturn_guards",
    kind="gauge",
    meaning="Guards against masses of letters by their state.",
    labels={"state": _GUARD_STATES},
)
LOGINS: Final = Metric(
    name="afterturn_logins_total",
    kind="counter",
    meaning="Attempts to get a token for a client secret; `limited`: there were too many.",
    labels={"result": _LOGIN_RESULTS},
)
REQUESTS_REFUSED: Final = Metric(
    name="afterturn_requests_refused_total",
    kind="counter",
    meaning="Requests of agents that were refused for who asked, where, or how often.",
    labels={"reason": _REFUSALS},
)

METRICS: Final[tuple[Metric, ...]] = (
    EXTRACTIONS_SETTLED,
    ATTEMPTS_FAILED,
    DUPLICATES_SUPPRESSED,
    HOLDS,
    MESSAGES_HELD,
    COMMITS_FAILED,
    SWEEP_ITEMS,
    MODEL_CALLS,
    MODEL_TOKENS,
    CALLS_UNKEPT,
    TOKENS_UNKEPT,
    EMBEDDER_CALLS,
    RECORDS_EMBEDDED,
    OPEN_TURN_AGE,
    LETTERS,
    LETTER_AGE,
    MEASURED_AT,
    BREAKERS,
    GUARDS,
    LOGINS,
    REQUESTS_REFUSED,
)


class Sink(Protocol):
    """Where numbers go."""

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        """Raise a counter."""
        ...

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Set a gauge."""
        ...


class _Nowhere:
    """Keeps nothing."""

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        pass

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits in MongoDB, as far as it is measured."""

    measured_at: datetime
    oldest_open_at: datetime | None
    """When the oldest open turn was recorded."""
    letters: Mapping[FailureClass, int]
    """Those that are dead, by class."""
    oldest_letter_at: datetime | None
    breakers: Mapping[str, int]
    """How many targets are in which state."""
    guards: Mapping[str, int]


class Metrics:
    """Counts and measures, each by a method of its own, so that no label is free text.

    Concurrency: any number of callers on one event loop. No method raises or waits.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._broken: set[str] = set()

    def extraction_settled(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self._add(EXTRACTIONS_SETTLED, outcome=outcome)

    def attempt_failed(self, failure_class: FailureClass) -> None:
        """Count a failed attempt."""
        self._add(ATTEMPTS_FAILED, failure_class=failure_class)

    def duplicate_suppressed(self, cause: Suppressed) -> None:
        """Count a message that needed no work."""
        self._add(DUPLICATES_SUPPRESSED, cause=cause)

    def message_held(self, subscription: str) -> None:
        """Count that a message is held, each time it is."""
        self._add(HOLDS, subscription=subscription)

    def holding(self, subscription: str, messages: int) -> None:
        """Say how many messages are held now."""
        self._set(MESSAGES_HELD, messages, subscription=subscription)

    def commit_failed(self, subscription: str) -> None:
        """Count a commit that Kafka did not take."""
        self._add(COMMITS_FAILED, subscription=subscription)

    def item_swept(self, sweep: SweepName, *, is_mended: bool) -> None:
        """Count an item that a sweep went to."""
        self._add(SWEEP_ITEMS, sweep=sweep, result="mended" if is_mended else "not_mended")

    def model_called(self, provider: Provider, outcome: CallOutcome, calls: int = 1) -> None:
        """Count requests to the model."""
        self._add(MODEL_CALLS, calls, provider=provider, outcome=outcome)

    def tokens_used(self, provider: Provider, prompt: int | None, completion: int | None) -> None:
        """Count the tokens of an answer, as far as the model told them."""
        self._add(MODEL_TOKENS, prompt or 0, provider=provider, direction="prompt")
        self._add(MODEL_TOKENS, completion or 0, provider=provider, direction="completion")

    def answer_unkept(
        self,
        cause: Unkept,
        *,
        calls: int = 1,
        prompt: int | None = None,
        completion: int | None = None,
    ) -> None:
        """Count requests, and their tokens as far as known, whose answer is of no use."""
        self._add(CALLS_UNKEPT, calls, cause=cause)
        self._add(TOKENS_UNKEPT, prompt or 0, direction="prompt")
        self._add(TOKENS_UNKEPT, completion or 0, direction="completion")

    def answer_superseded(self, reply: Reply) -> None:
        """Count an answer that came when another one was stored already."""
        self.answer_unkept(
            "superseded", prompt=reply.prompt_tokens, completion=reply.completion_tokens
        )

    def embedder_called(self, outcome: Literal["answered"] | FailureClass) -> None:
        """Count a request for vectors."""
        self._add(EMBEDDER_CALLS, outcome=outcome)

    def record_embedded(self, outcome: EmbeddingOutcome) -> None:
        """Count a record or turn that came to an end of its embedding."""
        self._add(RECORDS_EMBEDDED, outcome=outcome)

    def login(self, result: LoginResult) -> None:
        """Count an attempt to get a token."""
        self._add(LOGINS, result=result)

    def request_refused(self, reason: Refusal) -> None:
        """Count a request that was refused for who asked, where, or how often."""
        self._add(REQUESTS_REFUSED, reason=reason)

    def backlog(self, found: Backlog) -> None:
        """Say what waits in MongoDB."""
        self._set(MEASURED_AT, found.measured_at.timestamp())
        self._set(OPEN_TURN_AGE, _age(found.oldest_open_at, found.measured_at))
        self._set(LETTER_AGE, _age(found.oldest_letter_at, found.measured_at))
        for failure_class in FailureClass:
            self._set(LETTERS, found.letters.get(failure_class, 0), failure_class=failure_class)
        for breaker_state in _BREAKER_STATES:
            count = found.breakers.get(breaker_state, 0)
            self._set(BREAKERS, count, state=breaker_state)
        for guard_state in _GUARD_STATES:
            self._set(GUARDS, found.guards.get(guard_state, 0), state=guard_state)

    def _add(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        try:
            self._sink.add(metric, amount, labels)
        except Exception as error:  # whatever an exporter has, no message is to suffer from it
            self._broke(metric, error)

    def _set(self, metric: Metric, value: float, **labels: str) -> None:
        try:
            self._sink.set(metric, value, labels)
        except Exception as error:  # the same
            self._broke(metric, error)

    def _broke(self, metric: Metric, error: Exception) -> None:
        """Say it once a metric: what breaks for one message breaks for all."""
        if metric.name in self._broken:
            return
        self._broken.add(metric.name)
        log.error(
            "metric_not_kept",
            metric=metric.name,
            exception=f"{type(error).__module__}.{type(error).__qualname__}",
            advice="its value is wrong until this process is restarted; messages are not affected",
        )


NO_METRICS: Final = Metrics(_Nowhere())
"""For whoever nobody measures."""


def _age(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(timedelta(0), now - since).total_seconds()
