"""What an operator may set, read from the environment in composition roots only.

Prefix `AFTERTURN_`, groups joined by `__`: `AFTERTURN_MONGO__URI`. Nothing here means "no limit"
by being 0; where there is no limit the value is none. A variable that is empty counts as not set.
"""

from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.topics import DELAYS


def _number_as_seconds(value: object) -> object:
    """Return a plain number in text as one: an environment has only text."""
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value


Span = Annotated[
    timedelta,
    BeforeValidator(_number_as_seconds),
    Field(gt=timedelta(0), le=timedelta(days=90)),
]
"""A positive span of at most 90 days: seconds, or ISO 8601 (`PT2M`)."""


def _sendable(key: SecretStr) -> SecretStr:
    # A client that can't put it into a header says so with every request, and quotes it.
    if not all("!" <= character <= "~" for character in key.get_secret_value()):
        raise ValueError("must be of visible ASCII characters, without spaces")
    return key


Key = Annotated[SecretStr, AfterValidator(_sendable)]
"""What is sent in a header; it is never shown."""


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MongoSettings(_Group):
    """The truth and the ledger."""

    uri: SecretStr = SecretStr("mongodb://127.0.0.1:27017")
    """It may hold a password, so it is never shown."""
    database: str = "afterturn"
    timeout: Span = timedelta(seconds=10)
    """How long one command may take, finding a server included."""


class KafkaSettings(_Group):
    """The wake-ups and the order of work."""

    bootstrap_servers: str = "127.0.0.1:9092"
    instance_id: str | None = None
    """A name of this process that survives its restart: static membership, no rebalance."""
    replication_factor: int = Field(default=1, ge=1)
    publish_timeout: Span = timedelta(seconds=10)
    request_timeout: Span = timedelta(seconds=15)
    session_timeout: Span = timedelta(seconds=45)
    heartbeat_interval: Span = timedelta(seconds=3)
    rebalance_timeout: Span = timedelta(seconds=90)
    max_poll_interval: Span = timedelta(minutes=10)
    drain_timeout: Span = timedelta(seconds=60)
    """How long work in flight may go on when its partition is taken away."""


class LLMSettings(_Group):
    """Who reads the conversations."""

    provider: Literal["openai", "anthropic", "gemini", "openai_compatible"] | None = None
    """`openai`, `anthropic`, `gemini`, or `openai_compatible` for any other server. None: no model
    is configured; `up` and `demo` then start the offline extractor."""
    model: str | None = None
    """As the provider names it."""
    base_url: str | None = None
    """None: the vendor's own. `openai_compatible` needs one, up to what comes before
    `/chat/completions`."""
    api_key: Key | None = None
    """It is never shown. `openai_compatible` may do without."""
    timeout: Span = timedelta(seconds=60)
    """The deadline of one request."""
    reasks: int = Field(default=1, ge=0, le=3)
    """How often an invalid answer is asked for again within an attempt."""
    max_tokens: int = Field(default=4096, ge=256)
    """The limit of one answer; a truncated one gets one call with twice as much."""
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    """Not sent to Anthropic, whose interface takes none."""


class EmbeddingSettings(_Group):
    """Who makes the vectors that `semantic` and `hybrid` search by."""

    provider: Literal["none", "openai", "openai_compatible", "voyage", "local"] = "none"
    """`local`: multilingual-e5-small, which is installed with us and asks nobody. `none`: there are
    no vectors, and search goes by words alone; `up` and `demo` then take `local`."""
    model: str | None = None
    """As the provider names it; `local` has one."""
    base_url: str | None = None
    """None: the vendor's own. `openai_compatible` needs one, up to what comes before
    `/embeddings`."""
    api_key: Key | None = None
    """It is never shown. `openai_compatible` may do without."""
    dimension: int | None = Field(default=None, ge=1, le=8192)
    """How many numbers a vector has; a vector of any other number is none. `local` has 384."""
    timeout: Span = timedelta(seconds=30)
    """The deadline of one request."""
    batch: int = Field(default=32, ge=1, le=100)
    """How many texts one request holds at most, and how many records one process works on."""


class SearchSettings(_Group):
    """Who searches what is kept."""

    backend: Literal["plain", "mongodb"] = "plain"
    """`plain`: indexes in the memory of each process, on any MongoDB. `mongodb`: the database's own
    `$search` and `$vectorSearch`, where it has them; `search-indexes apply` makes their indexes."""


class RerankSettings(_Group):
    """Who puts what was found for a context in order, where a request says `rerank`."""

    provider: Literal["none", "voyage"] = "none"
    """`voyage`: Voyage AI, or any server of its protocol. `none`: the ranks of the sources do."""
    model: str | None = None
    """As the provider names it. None: rerank-2.5."""
    base_url: str | None = None
    """None: the vendor's own. Else up to what comes before `/rerank`."""
    api_key: Key | None = None
    """It is never shown. A server of one's own may do without."""
    timeout: Span = timedelta(seconds=5)
    """The deadline of one request; after it the ranks of the sources do."""


class SnapshotSettings(_Group):
    """When open turns become a snapshot."""

    max_messages: int = Field(default=20, ge=1)
    max_tokens: int = Field(default=6000, ge=1)
    stale: Span = timedelta(minutes=3)
    """How long a session must be silent."""


class ExtractionSettings(_Group):
    """How extraction works."""

    permits: int = Field(default=16, ge=1)
    """Model calls at once in one process."""
    attempt_deadline: Span = timedelta(seconds=150)
    lease: Span = timedelta(seconds=180)
    """How long a claim lasts; must be longer than an attempt."""
    context_turns: int = Field(default=6, ge=0)
    """How many turns before the snapshot the model is shown."""
    context_tokens: int = Field(default=1000, ge=0)
    opt_in: bool = False
    """Whether projects that have no settings are not extracted; see docs/projects.md."""


class RetrySettings(_Group):
    """How failures wait."""

    delays: dict[str, Span] = Field(default_factory=lambda: dict(DELAYS))
    """The wait of each tier by its name; every tier must be named."""
    age_cap: Span = timedelta(hours=36)
    """What was retried longer becomes a letter."""

    @model_validator(mode="after")
    def _every_tier_is_named(self) -> Self:
        if self.delays.keys() != DELAYS.keys():
            raise ValueError(f"delays must name each of {', '.join(DELAYS)} and no other")
        return self


class WakerSettings(_Group):
    """How what got lost is found."""

    interval: Span = timedelta(seconds=1)
    lost_after: Span = timedelta(minutes=2)
    """How late a message may be before it counts as lost and is sent again."""


class HealthSettings(_Group):
    """What a process says of itself: `/metrics`, `/live` and `/ready`."""

    host: str = "127.0.0.1"
    """Whoever reaches it sees counts and states, and needs no password."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """None: nothing is served. 0: a free one, which the log names."""


class HttpSettings(_Group):
    """Where agents reach the memory server."""

    host: str = "127.0.0.1"
    """While `auth` is off it must be a loopback address."""
    port: int = Field(default=8080, ge=0, le=65535)
    """0: a free one, which the log names."""
    auth: Literal["off", "on"] = "off"
    """`on`: every request needs a token, which service accounts get; see docs/http.md."""
    requests_per_second: float = Field(default=100.0, ge=0.1, le=100_000)
    """Of one token at one process; twice as many may come at once. With `auth` on."""
    project_writes_per_day: int | None = Field(default=None, ge=1)
    """Turns and memories that a project may store between two midnights UTC; none: any number. With
    `auth` on."""


class Settings(BaseSettings):
    """Everything of one process."""

    model_config = SettingsConfigDict(
        env_prefix="AFTERTURN_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
    )

    mongo: MongoSettings = MongoSettings()
    kafka: KafkaSettings = KafkaSettings()
    llm: LLMSettings = LLMSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    rerank: RerankSettings = RerankSettings()
    search: SearchSettings = SearchSettings()
    snapshot: SnapshotSettings = SnapshotSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    retry: RetrySettings = RetrySettings()
    waker: WakerSettings = WakerSettings()
    health: HealthSettings = HealthSettings()
    http: HttpSettings = HttpSettings()
    log_level: Literal["debug", "info", "warning", "error", "critical"] = "info"
