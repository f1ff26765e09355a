"""What a project sets for itself: the `memory:` block of its `project-config.yaml`, as stored.

What a project leaves out is the process's own setting or the default named here. What becomes of
each key is in `pipeline.projects.keys`.
"""

import re
from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from schemas.base import Frozen
from schemas.memory import Kind

METADATA_KEYS: Final = 10
"""The most metadata keys that may be declared."""
CUSTOM_TYPES: Final = 5
"""The most custom types that may be declared."""
TAGS: Final = 10
"""The most tags of one custom type."""
MISSION_CHARACTERS: Final = 4096
VOCABULARY_WORDS: Final = 50

RESERVED_METADATA: Final = frozenset(
    {
        "org_id",
        "project_id",
        "user_id",
        "agent_id",
        "content",
        "embedding",
        "embedding_model_id",
        "created_at",
    }
)
"""Names that no metadata key may have."""
RESERVED_TYPES: Final = frozenset(
    {
        *(kind.value for kind in Kind),
        "snapshot",
        "entity",
        "preferences",
        "turn",
        "stm",
        "short_term",
    }
)
"""Names that no custom type may have."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TAG: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SECRET_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,99}_API_KEY")
_LABEL: Final = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_URL: Final = re.compile(
    rf"[hH][tT][tT][pP][sS]?://(?:{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?"
    r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?"
)
_NUMBERS: Final = re.compile(r"[0-9.]+")
"""A host that clients take for an address of IPv4, if it is one."""
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,63}(:\*)?")


def _metadata_name(name: str) -> str:
    segments = name.split(".")
    if len(segments) > 2 or not all(map(_NAME.fullmatch, segments)):  # noqa: PLR2004 (a name, or a group and a name)
        raise ValueError(
            "must be one or two names joined by a dot, each of small letters, digits and"
            " underscores, beginning with a letter, at most 64 long"
        )
    if name in RESERVED_METADATA:
        raise ValueError("is a name the server keeps for itself: choose another one")
    return name


def _type_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            "must be small letters, digits and underscores, beginning with a letter, at most 64"
        )
    if name in RESERVED_TYPES:
        raise ValueError("is the name of something built in: choose another one")
    return name


def _tag_name(name: str) -> str:
    segments = name.split(".")
    if len(segments) > 2 or not all(map(_TAG.fullmatch, segments)):  # noqa: PLR2004 (a tag, or a group and a tag)
        raise ValueError(
            "must be one or two names joined by a dot, each of letters, digits, `_` and `-`,"
            " beginning with a letter, at most 64 long"
        )
    return name


def _secret_name(name: str) -> str:
    if not _SECRET_NAME.fullmatch(name) or name.startswith("AFTERTURN_"):
        raise ValueError(
            "must be the name of an environment variable of the extraction process that ends with"
            " _API_KEY, such as LLM_API_KEY or ACME_LLM_API_KEY; the key itself belongs into that"
            " variable, and settings of Afterturn's own (AFTERTURN_...) can't be named"
        )
    return name


def _address(url: str) -> str:
    if not _is_address(url):
        raise ValueError(
            "must be an http or https address of a host, with a port if need be, and no user,"
            " password, `?` or `#`"
        )
    return url


def _is_address(url: str) -> bool:
    # Stricter than any client: one that finds it can't use an address says so when it is too late.
    if not _URL.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        # The port is read where it is asked for.
        is_host = bool(parts.hostname) and parts.port != 0
        if ":" in (parts.hostname or "") or _NUMBERS.fullmatch(parts.hostname or ""):
            ip_address(parts.hostname or "")
    except ValueError:
        return False
    return is_host


def _word(name: str) -> str:
    if not _WORD.fullmatch(name):
        raise ValueError(
            "must be small letters, digits and underscores, beginning with a letter, with `:*` at"
            " its end where a topic follows it"
        )
    return name


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank; leave the line out instead")
    return text


def _named(tag: object) -> object:
    return {"name": tag} if isinstance(tag, str) else tag


def _twice(names: list[str]) -> str | None:
    return next((name for name in names if names.count(name) > 1), None)


class Group(Frozen):
    """A part of the block; one that is left empty (YAML's null) is one that is left out."""

    @model_validator(mode="before")
    @classmethod
    def _empty_is_left_out(cls, given: Any) -> Any:
        return {} if given is None else given


LogLevel = Literal["debug", "info", "warning", "error", "critical"]
Provider = Literal["openai", "anthropic", "gemini", "cerebras", "openai_compatible"]
Extracted = Literal["semantic", "episodic", "taxonomic", "procedural", "entity", "preferences"]
Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=MISSION_CHARACTERS), AfterValidator(_said)]


class Voyage(Group):
    """The embeddings."""

    model: Annotated[str, Field(max_length=200)] = "voyage-4-large"
    dimension: Annotated[Whole, Field(ge=1, le=16_384)] = 1024


class ShortTerm(Group):
    """Turns as they are recorded."""

    embed_on_write: Flag = False


class ExtractionLLM(Group):
    """Who reads this project's conversations; what is left out is the process's own."""

    provider: Provider | None = None
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    base_url: Annotated[str, Field(max_length=1000), AfterValidator(_address)] | None = None
    api_key_secret: Annotated[str, AfterValidator(_secret_name)] | None = None
    """The name of an environment variable, never a key."""
    auth_header: Literal["authorization", "api-key"] | None = None

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if self.provider == "openai_compatible" and self.base_url is None:
            raise ValueError("base_url: provider openai_compatible needs one")
        if self.auth_header is not None and self.provider in ("anthropic", "gemini"):
            raise ValueError(
                f"auth_header: provider {self.provider} has its own way; leave the line out"
            )
        if self.provider is None and (self.base_url or self.api_key_secret or self.auth_header):
            raise ValueError(
                "provider: name it where base_url, api_key_secret or auth_header is given"
            )
        return self

    @property
    def is_own(self) -> bool:
        """Whether anything is the project's own."""
        return self != ExtractionLLM()


class SnapshotRules(Group):
    """When the turns of a session are cut."""

    max_messages: Annotated[Whole, Field(ge=1, le=1000)] | None = None
    stale_minutes: Annotated[Number, Field(gt=0, le=60 * 24 * 30)] | None = None
    embed_stm_before_promotion: Flag = True
    topic_shift_enabled: Literal[False] = False
    topic_shift_threshold: Annotated[Number, Field(ge=0, le=1)] = 0.35
    delete_promoted: Literal[False] = False
    ttl_days: Annotated[Whole, Field(ge=1, le=36_500)] = 30


class BackgroundExtraction(Group):
    """What happens behind the scenes."""

    snapshot: SnapshotRules = SnapshotRules()


class KindRules(Group):
    """What is said to the model about one kind of memory."""

    prompt: Text | None = None


class Word(Frozen):
    """A word of the project's own for what facts are about, beside those of the prompt."""

    name: Annotated[str, AfterValidator(_word)]
    description: Annotated[str, Field(max_length=300), AfterValidator(_said)]


class Extraction(Group):
    """What is extracted, and what the model is told about it."""

    enabled: tuple[Extracted, ...] = tuple(kind.value for kind in Kind)
    """Left out: all kinds; empty: none. Nothing here touches what agents save themselves."""
    mission: Text | None = None
    vocabulary: Annotated[tuple[Word, ...], Field(max_length=VOCABULARY_WORDS)] = ()
    semantic: KindRules = KindRules()
    episodic: KindRules = KindRules()
    procedural: KindRules = KindRules()
    taxonomic: KindRules = KindRules()
    preferences: KindRules = KindRules()

    @model_validator(mode="after")
    def _no_word_stands_twice(self) -> Self:
        if _twice([word.name for word in self.vocabulary]):
            raise ValueError("vocabulary: a word stands there twice")
        return self


class MetadataType(StrEnum):
    """What a declared metadata key holds."""

    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"


class MetadataKey(Frozen):
    """A key of callers' metadata that may be filtered by, as `metadata.` and its name."""

    name: Annotated[str, AfterValidator(_metadata_name)]
    type: MetadataType

    @property
    def path(self) -> str:
        """What a filter calls it."""
        return f"metadata.{self.name}"


class Leg(StrEnum):
    """A way of matching in which a source may be filtered."""

    VECTOR = "vector"
    TEXT = "text"
    BOTH = "both"


class Indexed(StrEnum):
    """A source that metadata may be filterable in."""

    SHORT_TERM = "short_term"
    SEMANTIC = "semantic"
    EPISODIC = "episodic"
    PROCEDURAL = "procedural"
    TAXONOMIC = "taxonomic"


class Tag(Frozen):
    """A tag that records of a custom type may be looked up by."""

    name: Annotated[str, AfterValidator(_tag_name)]


class CustomType(Frozen):
    """A kind of record of the project's own. Once stored it never changes and never goes."""

    name: Annotated[str, AfterValidator(_type_name)]
    collection: Annotated[str, AfterValidator(_type_name)] | None = None
    tags: Annotated[
        tuple[Annotated[Tag, BeforeValidator(_named)], ...], Field(max_length=TAGS)
    ] = ()

    @model_validator(mode="after")
    def _no_tag_hides_another(self) -> Self:
        names = [tag.name for tag in self.tags]
        if _twice(names):
            raise ValueError("tags: a tag stands there twice")
        if any(group in names for group, dot, _ in (name.partition(".") for name in names) if dot):
            raise ValueError("tags: a name is a tag, or a group of tags, not both")
        return self

    @property
    def tag_names(self) -> frozenset[str]:
        """The tags, a nested one as `group.tag`."""
        return frozenset(tag.name for tag in self.tags)


class Capacity(Group):
    """How many servers there are."""

    min_replicas: Annotated[Whole, Field(ge=1, le=10)] | None = None
    max_replicas: Annotated[Whole, Field(ge=1, le=10)] | None = None


class Instructions(Frozen):
    """What a project says to the model that reads its conversations."""

    mission: str | None = None
    vocabulary: tuple[Word, ...] = ()
    prompts: dict[Kind, str] = Field(default_factory=dict[Kind, str])
    """By kind of memory, where something is said of it."""


NO_INSTRUCTIONS: Final = Instructions()


Index = dict[Indexed, Annotated[tuple[Leg, ...], Field(min_length=1)]]
_DEFAULT_INDEX: Final[Index] = {Indexed.SHORT_TERM: (Leg.TEXT,)}


class ProjectSettings(Group):
    """The block. What was named in the file is in `model_fields_set`, here and in each group."""

    log_level: LogLevel = "info"
    voyage: Voyage = Voyage()
    short_term: ShortTerm = ShortTerm()
    extraction_llm: ExtractionLLM = ExtractionLLM()
    background_extraction: BackgroundExtraction = BackgroundExtraction()
    extraction: Extraction = Extraction()
    metadata_partition_key: Annotated[tuple[MetadataKey, ...], Field(max_length=METADATA_KEYS)] = ()
    metadata_partition_index: Index = Field(default_factory=lambda: dict(_DEFAULT_INDEX))
    custom_memory_types: Annotated[tuple[CustomType, ...], Field(max_length=CUSTOM_TYPES)] = ()
    capacity: Capacity = Capacity()

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if _twice([key.name for key in self.metadata_partition_key]):
            raise ValueError("metadata_partition_key: a name stands there twice")
        if _twice([each.name for each in self.custom_memory_types]):
            raise ValueError("custom_memory_types: a name stands there twice")
        if self._legs(Indexed.SHORT_TERM) & {Leg.VECTOR} and not self.short_term.embed_on_write:
            raise ValueError(
                "metadata_partition_index.short_term: vector and both need"
                " short_term.embed_on_write: true"
            )
        return self

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that are extracted in the background."""
        return tuple(kind for kind in Kind if kind.value in self.extraction.enabled)

    @property
    def instructions(self) -> Instructions:
        """What is said to the model."""
        texts = {kind: self._rules(kind).prompt for kind in Kind}
        return Instructions(
            mission=self.extraction.mission,
            vocabulary=self.extraction.vocabulary,
            prompts={kind: text for kind, text in texts.items() if text is not None},
        )

    @property
    def filterable(self) -> dict[str, MetadataType]:
        """The paths that filters may name, with the type of each."""
        return {key.path: key.type for key in self.metadata_partition_key}

    def serves(self, source: Indexed, leg: Leg) -> bool:
        """Return whether a source may be filtered in a way of matching; `both` wants each."""
        wanted = {Leg.VECTOR, Leg.TEXT} if leg is Leg.BOTH else {leg}
        return wanted <= self._legs(source)

    def custom_type(self, name: str) -> CustomType | None:
        """Return a declared type."""
        return next((each for each in self.custom_memory_types if each.name == name), None)

    def _legs(self, source: Indexed) -> set[Leg]:
        listed = set(self.metadata_partition_index.get(source, ()))
        return {Leg.VECTOR, Leg.TEXT} if Leg.BOTH in listed else listed

    def _rules(self, kind: Kind) -> KindRules:
        return cast("KindRules", getattr(self.extraction, kind.value))


NO_SETTINGS: Final = ProjectSettings()
"""Those of a project that nobody has configured."""


class Revision(Frozen):
    """Settings as they were stored once; 0 are those of a project without any."""

    number: int = 0
    settings: ProjectSettings = NO_SETTINGS
