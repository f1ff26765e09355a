"""The `memory:` block: what it is read as, what is refused and where, what may not change."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import ConfigurationError
from pipeline.projects.configuring import (
    differences,
    forbidden_changes,
    settings_of,
    without_effect,
)
from pipeline.projects.keys import KEYS, Effect
from schemas.memory import Kind
from schemas.project import Indexed, Leg, ProjectSettings
from tests.projects_page import table

PAGE = Path(__file__).parents[2] / "docs" / "projects.md"

DOCUMENTED = """
memory:
  log_level: info
  voyage:
    model: "voyage-4-large"
    dimension: 1024
  short_term:
    embed_on_write: false
  extraction_llm:
    provider: openai
    model: null
    base_url: null
    api_key_secret: null
    auth_header: null
  background_extraction:
    snapshot:
      max_messages: 20
      stale_minutes: 3
      embed_stm_before_promotion: true
      topic_shift_enabled: false
      topic_shift_threshold: 0.35
      delete_promoted: false
      ttl_days: 30
  extraction:
    enabled: []
"""
"""Every documented key at its documented default."""


def parsed(text: str, stored: ProjectSettings | None = None) -> ProjectSettings:
    return settings_of(text, name="p.yaml", stored=stored)


def block(**values: Any) -> str:
    return json.dumps({"memory": values})


def refusal(text: str, stored: ProjectSettings | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parsed(text, stored)
    return str(caught.value)


def test_the_documented_defaults_are_read_as_they_stand() -> None:
    settings = parsed(DOCUMENTED)

    assert settings.kinds == ()
    assert settings.extraction_llm.provider == "openai"
    assert differences(settings, parsed(block(extraction_llm={"provider": "openai"}))) != []
    unset = parsed(DOCUMENTED.replace("  extraction:\n    enabled: []\n", ""))
    plain = ProjectSettings.model_validate({"extraction_llm": {"provider": "openai"}})
    changed = {each.path for each in differences(plain, unset)}
    assert changed == {
        "background_extraction.snapshot.max_messages",
        "background_extraction.snapshot.stale_minutes",
    }, "a documented default differs from ours"


def test_nothing_enabled_extracts_nothing_and_no_line_enables_all() -> None:
    assert parsed(block(extraction={"enabled": []})).kinds == ()
    assert parsed(block(extraction={})).kinds == tuple(Kind)
    assert parsed("memory:\n").kinds == tuple(Kind)
    some = parsed(block(extraction={"enabled": ["taxonomic", "semantic"]}))
    assert some.kinds == (Kind.SEMANTIC, Kind.TAXONOMIC)


def test_an_empty_enabled_line_is_not_taken_for_either() -> None:
    assert "[] extracts nothing" in refusal("memory:\n  extraction:\n    enabled:\n")


def test_kinds_that_are_none_here_are_taken_and_said() -> None:
    settings = parsed(block(extraction={"enabled": ["preferences", "entity", "semantic"]}))

    assert settings.kinds == (Kind.SEMANTIC,)
    said = " ".join(each.detail for each in without_effect(settings))
    assert "preferences" in said
    assert "entity" in said


def test_a_file_without_the_block_says_that_nothing_changed() -> None:
    assert "no `memory:` key, so nothing was changed" in refusal("agents: []\n")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("memory:\n  log_level: loud\n", 2, "log_level"),
        ("memory:\n  extraction:\n    enabeld: []\n", 3, "there are: enabled, episodic, mission"),
        ("memory:\n  log_level: info\n  log_level: debug\n", 3, "a second time"),
        ("memory:\n  a: &x 1\n  b: *x\n", 2, "write the value out"),
        ("memory:\n  extraction: [\n", 3, "no YAML"),
        ("memory:\n  voyage:\n    dimension: true\n", 3, "dimension"),
        (
            "memory:\n  background_extraction:\n    snapshot:\n      topic_shift_enabled: true\n",
            4,
            "refused: a session is cut by size and by silence only",
        ),
        (
            "memory:\n  background_extraction:\n    snapshot:\n      delete_promoted: true\n",
            4,
            "refused: turns stay",
        ),
        ("memory:\n  metadata_partition_key:\n    - name: Tier\n      type: string\n", 3, "name"),
        ("memory:\n  metadata_partition_key:\n    - {name: a.b.c, type: string}\n", 3, "name"),
        ("memory:\n  metadata_partition_key:\n    - {name: content, type: string}\n", 3, "keeps"),
        ("memory:\n  metadata_partition_key:\n    - {name: tier, type: text}\n", 3, "type"),
        ("memory:\n  custom_memory_types:\n    - {name: semantic}\n", 3, "built in"),
        ("memory:\n  custom_memory_types:\n    - {name: p, tags: [a, a.b]}\n", 3, "not both"),
        ("memory:\n  custom_memory_types:\n    - {name: p, tags: [a.b.c]}\n", 3, "joined"),
        ("memory:\n  extraction_llm:\n    api_key_secret: my-key\n", 3, "_API_KEY"),
        (
            "memory:\n  extraction_llm:\n    provider: openai\n"
            "    api_key_secret: AFTERTURN_LLM__API_KEY\n",
            4,
            "can't be named",
        ),
        (
            "memory:\n  extraction_llm:\n    provider: openai\n    base_url: http://c/v1?region=x\n",
            4,
            "no user, password",
        ),
        ("memory:\n  log_level: !!bool loud\n", 2, "in quotes"),
        ("memory:\n  log_level: !!int ''\n", 2, "in quotes"),
        ("memory:\n  log_level: !!timestamp soon\n", 2, "in quotes"),
        (f"memory:\n  log_level: 1{':59' * 3000}.5\n", 2, "in quotes"),
        ("memory:\n  extraction: " + "[" * 200_000, 2, "nest deeper"),
        ("memory:\n  metadata_partition_index:\n    short_term: [both]\n", 2, "embed_on_write"),
        ("memory:\n  extraction:\n    mission: '  '\n", 3, "blank"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line_and_what_to_do(
    text: str, line: int, said: str
) -> None:
    message = refusal(text)

    assert f"line {line}" in message
    assert said in message


def test_what_looks_like_a_secret_is_refused_and_not_repeated() -> None:
    secret = "sk-test-0000000000000000000000"
    message = refusal(block(extraction={"mission": f"Use {secret} for it."}))

    assert "extraction.mission" in message
    assert "environment variable" in message
    assert secret not in message


@pytest.mark.parametrize("times", [1, 2])
def test_a_key_that_looks_like_a_secret_is_not_repeated(times: int) -> None:
    secret = "sk-test-0000000000000000000000"
    message = refusal("memory:\n  extraction:\n" + f"    {secret}: 1\n" * times)

    assert "line 3" in message
    assert "environment variable" in message
    assert secret not in message


@pytest.mark.parametrize(
    "url",
    [
        "http://h:abc/v1",
        "http://h:99999/v1",
        "http://h:0/v1",
        "http://h:80:80/",
        "http://two words/v1",
        "http://h/two words",
        "http://a..b/",
        "https://ho\nst/",
        "http://h/\0",
        "http://h\\x",
        "http://m\u00fcller.example/",
        "http://999.1.1.1/",
        "http://[::zz]/",
        f"http://{'a' * 64}.example/",
        "http://u@h/",
        "ftp://h/",
    ],
)
def test_an_address_that_a_client_could_not_use_is_refused(url: str) -> None:
    llm = {"provider": "openai_compatible", "model": "m", "base_url": url}

    assert "must be an http or https address" in refusal(block(extraction_llm=llm))


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://127.0.0.1:8080",
        "http://[::1]:8080/v1/",
        "http://vllm_0:8000/v1",
        "https://xn--mller-kva.example/openai/deployments/a%20b",
        "HTTP://H/v1",
    ],
)
def test_an_address_that_a_client_could_use_is_taken(url: str) -> None:
    llm = {"provider": "openai_compatible", "model": "m", "base_url": url}

    assert parsed(block(extraction_llm=llm)).extraction_llm.base_url == url


def test_a_wrong_value_is_not_repeated_either() -> None:
    assert "hunter2-xyz" not in refusal(block(extraction_llm={"api_key_secret": "hunter2-xyz"}))


def test_there_are_at_most_so_many_of_each() -> None:
    keys = [{"name": f"k{number}", "type": "string"} for number in range(11)]
    types = [{"name": f"t{number}"} for number in range(6)]
    tags = [f"g{number}" for number in range(11)]

    parsed(block(metadata_partition_key=keys[:10], custom_memory_types=types[:5]))
    assert "metadata_partition_key" in refusal(block(metadata_partition_key=keys))
    assert "custom_memory_types" in refusal(block(custom_memory_types=types))
    assert "tags" in refusal(block(custom_memory_types=[{"name": "t", "tags": tags}]))


TYPE = {"name": "profile", "collection": "profiles", "tags": [{"name": "tier"}, {"name": "a.b"}]}
STORED = parsed(
    block(
        metadata_partition_key=[{"name": "tier", "type": "string"}],
        custom_memory_types=[TYPE],
    )
)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"metadata_partition_key": []}, "metadata_partition_key.tier"),
        (
            {"metadata_partition_key": [{"name": "tier", "type": "number"}]},
            "metadata_partition_key.tier",
        ),
        ({"custom_memory_types": []}, "custom_memory_types.profile"),
        (
            {"custom_memory_types": [TYPE | {"tags": [{"name": "tier"}]}]},
            "custom_memory_types.profile",
        ),
        (
            {"custom_memory_types": [TYPE | {"collection": "others"}]},
            "custom_memory_types.profile",
        ),
    ],
)
def test_what_may_not_change_is_refused(changes: Mapping[str, Any], path: str) -> None:
    whole = {
        "metadata_partition_key": [{"name": "tier", "type": "string"}],
        "custom_memory_types": [TYPE],
    }

    assert path in refusal(block(**{**whole, **changes}), STORED)


def test_what_is_added_may_follow_in_any_order() -> None:
    turned = TYPE | {"tags": ["a.b", "tier"]}
    follower = parsed(
        block(
            log_level="debug",
            metadata_partition_key=[
                {"name": "age", "type": "number"},
                {"name": "tier", "type": "string"},
            ],
            custom_memory_types=[{"name": "another"}, turned],
        ),
        STORED,
    )

    assert forbidden_changes(STORED, follower) == []
    assert {each.path for each in differences(STORED, follower)} >= {
        "log_level",
        "metadata_partition_key.age.type",
    }


def test_what_is_set_and_does_nothing_is_said_with_what_to_do_instead() -> None:
    said = {each.path: each.detail for each in without_effect(parsed(DOCUMENTED))}

    assert "AFTERTURN_LOG_LEVEL" in said["log_level"]
    assert "background_extraction.snapshot.ttl_days" in said
    assert without_effect(parsed("memory:\n")) == []


def test_a_source_may_be_filtered_in_the_ways_that_are_listed() -> None:
    listed = parsed(
        block(
            short_term={"embed_on_write": True},
            metadata_partition_index={"semantic": ["both"], "short_term": ["vector", "text"]},
        )
    )

    assert listed.serves(Indexed.SEMANTIC, Leg.BOTH)
    assert listed.serves(Indexed.SHORT_TERM, Leg.BOTH)
    assert not listed.serves(Indexed.EPISODIC, Leg.TEXT)
    assert parsed("memory:\n").serves(Indexed.SHORT_TERM, Leg.TEXT)


def test_the_table_has_every_key_and_no_other() -> None:
    assert sorted(key.path for key in KEYS) == sorted(_paths(ProjectSettings))
    assert all(key.meaning for key in KEYS)
    assert {key.effect for key in KEYS} == set(Effect)


def _paths(model: Any, prefix: str = "") -> list[str]:
    """Return the paths of a model's fields, down to what is no group."""
    found: list[str] = []
    for name, member in model.model_fields.items():
        inner = _model_in(member.annotation)
        if inner is None:
            found.append(f"{prefix}{name}")
        else:
            is_list = not isinstance(member.annotation, type)
            found += _paths(inner, f"{prefix}{name}{'[]' if is_list else ''}.")
    return found


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if (found := _model_in(inner)) is not None:
            return found
    return None


def test_operators_are_told_of_every_key() -> None:
    told = PAGE.read_text()

    assert table() in told, "python -m tests.projects_page, into docs/projects.md"


def test_the_file_that_is_shown_is_one_that_is_taken() -> None:
    shown = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    settings = parsed(shown)

    assert settings.kinds == (Kind.SEMANTIC, Kind.EPISODIC)
    assert without_effect(settings) == []
