"""What is read back of records: current contents only, in words, each with a key of its own."""

from pipeline.reading.memories import memories_of
from schemas.identity import Scope, Visibility
from schemas.memory import Kind, SemanticContent
from schemas.record import ContentRun, Record, RunState
from tests.builders import SAID_AT


def record(*states: RunState) -> Record:
    return Record(
        record_id="rec_1",
        scope=Scope(project_id="p", owner="u", visibility=Visibility.PRIVATE),
        kind=Kind.SEMANTIC,
        key="user/home",
        subject="user",
        runs=tuple(
            ContentRun(
                memory_id="ast_1",
                content=SemanticContent(attribute="home", label=state, text=f"It is {state}."),
                state=state,
                assertions=(f"ast_{place}",),
                evidence=(),
                confidence=1.0,
                first_at=SAID_AT,
                last_at=SAID_AT,
            )
            for place, state in enumerate(states)
        ),
        rev=1,
    )


def test_only_what_is_current_is_read_back() -> None:
    read = memories_of([record(*RunState)])

    assert [one.text for one in read] == ["It is current."]


def test_contents_of_one_memory_have_keys_of_their_own() -> None:
    read = memories_of([record(*RunState)], tuple(RunState))

    assert {one.memory_id for one in read} == {"ast_1"}
    assert len({one.key for one in read}) == len(RunState)
