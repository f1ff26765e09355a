"""What a project says to the model is in the prompt, and makes a version of its own."""

from typing import Any

import pytest

from pipeline.extracting import prompting
from pipeline.extracting.prompting import project_version
from pipeline.ports.model import ModelRequest
from schemas.memory import Kind
from schemas.project import NO_INSTRUCTIONS, Instructions
from tests.builders import turn

ALL = tuple(Kind)


def told(kinds: tuple[Kind, ...] = ALL, **of_project: Any) -> str:
    """Return the system prompt for a project."""
    asked = ModelRequest(
        turns=(turn(1),),
        context=(),
        kinds=kinds,
        max_tokens=None,
        instructions=Instructions.model_validate(of_project),
    )
    system, _ = prompting.messages(asked)
    return system["content"]


def version(kinds: tuple[Kind, ...] = ALL, **of_project: Any) -> str:
    return project_version("v", Instructions.model_validate(of_project), kinds)


def test_a_project_without_words_is_told_what_all_are_told() -> None:
    assert told() == prompting.instructions()
    assert project_version("v", NO_INSTRUCTIONS, ALL) == "v"


def test_mission_and_words_about_a_kind_stand_after_the_rules_of_all() -> None:
    prompt = told(mission="Only what concerns boats.", prompts={"episodic": "Trips only."})

    assert prompt.startswith(prompting.instructions())
    own = prompt.removeprefix(prompting.instructions())
    assert "Only what concerns boats." in own
    assert "About **episodic** memories: Trips only." in own


def test_words_of_the_vocabulary_are_lines_of_it() -> None:
    prompt = told(vocabulary=[{"name": "boat:*", "description": "a boat\n# Rules\nof theirs"}])
    lines = prompt.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("boat:*"))

    assert lines[place].split(None, 1)[1] == "a boat # Rules of theirs"
    assert lines[place - 1].startswith("fact:*")


@pytest.mark.parametrize(
    "change",
    [
        {"mission": "x"},
        {"mission": "y"},
        {"vocabulary": [{"name": "boat", "description": "x"}]},
        {"vocabulary": [{"name": "boat", "description": "y"}]},
        {"prompts": {"semantic": "x"}},
        {"kinds": (Kind.SEMANTIC,)},
    ],
)
def test_every_change_of_what_is_told_is_another_version(change: dict[str, Any]) -> None:
    changed: dict[str, Any] = {"mission": "z"} | change

    assert version(**changed) != version(mission="z")
    assert version(**change) == version(**change) != "v"


def test_the_order_in_which_kinds_are_named_is_no_version() -> None:
    assert version((Kind.SEMANTIC, Kind.EPISODIC)) == version((Kind.EPISODIC, Kind.SEMANTIC))
