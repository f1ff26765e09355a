"""What direct saves do to a record: they name one memory, reword it, and carry their own fields."""

from typing import Any

from schemas.assertion import Assertion
from schemas.memory import Relation
from schemas.record import ContentRun, RunState
from tests.assertion_builder import assertion, folded


def saved(text: str, *, on: int, memory: str, **fields: Any) -> Assertion:
    """Return a direct save of where the user lives."""
    own = {name: fields.pop(name) for name in ("target", "metadata", "fields") if name in fields}
    return assertion(
        text,
        on=on,
        extraction_id=None,
        saved={"memory_id": memory, "source": "agent", **own},
        **fields,
    )


def states(runs: tuple[ContentRun, ...]) -> list[tuple[str, str, RunState]]:
    """Return id, label and state of each run."""
    return [(run.memory_id, getattr(run.content, "label", ""), run.state) for run in runs]


def test_what_was_extracted_goes_by_its_first_assertion() -> None:
    first, again = assertion("Porto", on=0), assertion("Porto", on=1)

    (run,) = folded(first, again)

    assert run.memory_id == first.assertion_id


def test_a_correction_of_one_memory_leaves_the_others_of_its_slot() -> None:
    runs = folded(
        saved("Porto", on=0, memory="m1"),
        saved("Lisbon", on=1, memory="m2"),
        saved("Braga", on=2, memory="m1", target="m1", relation=Relation.CORRECTS),
    )

    assert states(runs) == [
        ("m1", "Porto", RunState.WRONG),
        ("m2", "Lisbon", RunState.CURRENT),
        ("m1", "Braga", RunState.CURRENT),
    ]


def test_an_end_of_one_memory_ends_no_other() -> None:
    runs = folded(
        saved("Porto", on=0, memory="m1"),
        saved("Lisbon", on=1, memory="m2"),
        saved("Porto", on=2, memory="m2", target="m2", relation=Relation.ENDED),
    )

    assert [run.state for run in runs] == [RunState.CURRENT, RunState.ENDED]


def test_a_save_without_a_target_replaces_all_that_is_current() -> None:
    runs = folded(
        saved("Porto", on=0, memory="m1"),
        saved("Lisbon", on=1, memory="m2"),
        saved("Braga", on=2, memory="m3", relation=Relation.REPLACES),
    )

    assert [run.state for run in runs] == [
        RunState.REPLACED,
        RunState.REPLACED,
        RunState.CURRENT,
    ]


def test_the_last_save_has_the_word_and_extraction_does_not_take_it_away() -> None:
    (run,) = folded(
        saved("porto", on=0, memory="m1", metadata={"tier": 1}),
        saved("Porto", on=1, memory="m1", metadata={"tier": 2}),
        assertion("PORTO", on=2),
    )

    assert getattr(run.content, "text", "") == "Porto"
    assert (run.metadata, run.source) == ({"tier": 2}, "agent")


def test_a_save_without_metadata_leaves_none() -> None:
    (run,) = folded(
        saved("Porto", on=0, memory="m1", metadata={"tier": 1}), saved("Porto", on=1, memory="m1")
    )

    assert run.metadata is None


def test_other_fields_make_another_memory() -> None:
    runs = folded(
        saved("Porto", on=0, memory="m1", fields={"content": "by train"}),
        saved("Porto", on=1, memory="m2", fields={"content": "by boat"}),
    )

    assert [run.memory_id for run in runs] == ["m1", "m2"]


def test_agents_and_conversations_are_kept_each_once() -> None:
    (run,) = folded(
        assertion("Porto", on=0, agent_id="a", session_id="monday"),
        assertion("Porto", on=1, agent_id="b", session_id="monday"),
        assertion("Porto", on=2),
    )

    assert (run.agents, run.sessions) == (("a", "b"), ("monday",))
