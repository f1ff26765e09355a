"""What becomes of each key of a project's `memory:` block. `docs/projects.md` is made from it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Effect(StrEnum):
    """What a key does here."""

    IMPLEMENTED = "implemented"
    WITHOUT_EFFECT = "without effect"
    """Accepted, so that a file written for another server works, and said whenever it is set."""
    REFUSED = "refused unless left at its default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key, by its path in the block; `[]` stands for each of a list."""

    path: str
    default: str
    effect: Effect
    meaning: str
    """What it does; of one without effect or refused, why, and what to do instead."""
    is_fixed: bool = False
    """Whether what was stored once may never be changed or taken away."""


def _on(path: str, default: str, meaning: str, *, is_fixed: bool = False) -> Key:
    return Key(
        path=path,
        default=default,
        effect=Effect.IMPLEMENTED,
        meaning=meaning,
        is_fixed=is_fixed,
    )


def _idle(path: str, default: str, meaning: str) -> Key:
    return Key(path=path, default=default, effect=Effect.WITHOUT_EFFECT, meaning=meaning)


def _refused(path: str, default: str, meaning: str) -> Key:
    return Key(path=path, default=default, effect=Effect.REFUSED, meaning=meaning)


_ONE_EMBEDDER: Final = (
    "one embedder serves all projects, whose vectors are compared by one index: set"
    " `AFTERTURN_EMBEDDING__*` for it"
)
_SNAPSHOT: Final = "background_extraction.snapshot"
_PROMPT: Final = "Said to the model about this kind, at most 4096 characters."

KEYS: Final[tuple[Key, ...]] = (
    _idle(
        "log_level",
        "`info`",
        "one process serves many projects and has one log: set `AFTERTURN_LOG_LEVEL` for it",
    ),
    _idle("voyage.model", "`voyage-4-large`", _ONE_EMBEDDER),
    _idle("voyage.dimension", "`1024`", _ONE_EMBEDDER),
    _on(
        "short_term.embed_on_write",
        "`false`",
        "Turns get a vector each, in the background and after they are recorded, by the process's"
        " embedder: `semantic` and `hybrid` of the source `stm` go by them. It counts for what is"
        " recorded some seconds after `apply`; `./afterturn reembed` makes those of earlier turns."
        " Turned off, no new ones are made. A vector leg of `short_term` is refused without it.",
    ),
    _on(
        "extraction_llm.provider",
        "the process's",
        "`openai`, `anthropic`, `gemini`, `cerebras`, or `openai_compatible` for any other server.",
    ),
    _on(
        "extraction_llm.model",
        "the process's",
        "As the provider names it. Left out where the process asks another provider, nobody can be"
        " asked: what the project says waits, and `memory status` tells.",
    ),
    _on(
        "extraction_llm.base_url",
        "the provider's own",
        "Where it is asked; `openai_compatible` needs one. What it says who we are is then the"
        " project's own key, never the process's.",
    ),
    _on(
        "extraction_llm.api_key_secret",
        "see meaning",
        "The name of an environment variable of the extraction process that holds the key; it ends"
        " with `_API_KEY`. Left out: the process's key where provider and address are the"
        " process's; else the provider's variable (`OPENAI_API_KEY`, ...), else `LLM_API_KEY`; with"
        " `openai_compatible` none.",
    ),
    _on(
        "extraction_llm.auth_header",
        "the provider's own",
        "`authorization` (Bearer) or `api-key`; refused with `anthropic` and `gemini`.",
    ),
    _on(f"{_SNAPSHOT}.max_messages", "the process's (20)", "So many open turns are cut."),
    _on(
        f"{_SNAPSHOT}.stale_minutes",
        "the process's (3)",
        "A session silent for so long is cut; fractions are fine.",
    ),
    _idle(
        f"{_SNAPSHOT}.embed_stm_before_promotion",
        "`true`",
        "no snapshot waits for a vector: turns are embedded as they are recorded, where"
        " `short_term.embed_on_write` says so",
    ),
    _refused(
        f"{_SNAPSHOT}.topic_shift_enabled",
        "`false`",
        "a session is cut by size and by silence only: leave it out or false",
    ),
    _idle(f"{_SNAPSHOT}.topic_shift_threshold", "`0.35`", "no session is cut at a shift of topic"),
    _refused(
        f"{_SNAPSHOT}.delete_promoted",
        "`false`",
        "turns stay: records rest on them as evidence, and nothing expires in this version; leave"
        " it out or false",
    ),
    _idle(f"{_SNAPSHOT}.ttl_days", "`30`", "it is the age for `delete_promoted`, which is off"),
    _on(
        "extraction.enabled",
        "all kinds",
        "`semantic`, `episodic`, `procedural`, `taxonomic`. `[]` extracts nothing; leaving the"
        " line out enables all. What agents save themselves is not touched. `entity` and"
        " `preferences` are taken and do nothing: what people prefer, and who is who, are semantic"
        " facts here.",
    ),
    _on(
        "extraction.mission",
        "none",
        "What is worth knowing in this project, and what is not, in plain words, at most 4096"
        " characters. Goes into the prompt and so into the extractor's version.",
    ),
    _on(
        "extraction.vocabulary[].name",
        "none",
        "A word for what facts are about, beside those of the prompt: `ticket`, or `ticket:*` where"
        " a topic follows. At most 50.",
    ),
    _on("extraction.vocabulary[].description", "none", "What it stands for."),
    _on("extraction.semantic.prompt", "none", _PROMPT),
    _on("extraction.episodic.prompt", "none", _PROMPT),
    _on("extraction.procedural.prompt", "none", _PROMPT),
    _on("extraction.taxonomic.prompt", "none", _PROMPT),
    _idle(
        "extraction.preferences.prompt",
        "none",
        "preferences are semantic facts here: say it in `extraction.semantic.prompt`",
    ),
    _on(
        "metadata_partition_key[].name",
        "none",
        "A key of callers' metadata that filters may name, as `metadata.<name>`; at most 10. It"
        " takes effect with `apply`, with no index to rebuild.",
        is_fixed=True,
    ),
    _on(
        "metadata_partition_key[].type",
        "none",
        "`string` (the whole value, to the letter), `number`, `boolean` or `date`; ranges want a"
        " number or a date.",
        is_fixed=True,
    ),
    _on(
        "metadata_partition_index",
        "`short_term: [text]`",
        "For `short_term`, `semantic`, `episodic`, `procedural`, `taxonomic`: in which ways of"
        " matching a source may be filtered, `[vector]`, `[text]` or `[both]`. The source `stm` is"
        " an error of its own where `short_term` is not listed.",
    ),
    _on(
        "custom_memory_types[].name",
        "none",
        "A kind of record of the project's own; at most 5.",
        is_fixed=True,
    ),
    _idle(
        "custom_memory_types[].collection",
        "none",
        "records of all types are kept together; it is fixed with its type all the same",
    ),
    _on(
        "custom_memory_types[].tags[].name",
        "none",
        "What records of the type can be looked up by; at most 10, a group as `group.tag`.",
        is_fixed=True,
    ),
    _idle("capacity.min_replicas", "none", "run as many processes as you like of each"),
    _idle("capacity.max_replicas", "none", "run as many processes as you like of each"),
)
"""Every key there is."""

BY_PATH: Final = {key.path: key for key in KEYS}
