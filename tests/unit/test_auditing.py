"""What counts as a broken law in a session as it was read."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.auditing import (
    EmbeddingView,
    ListedSnapshot,
    SessionView,
    TurnMark,
    embedding_findings,
    session_findings,
)
from pipeline.embedding.ports import Embedded, content_hash
from schemas.embedding import Embedding, EmbeddingState
from schemas.extraction import Outcome
from schemas.record import Record
from tests.assertion_builder import assertion, folded
from tests.builders import SESSION, SNAPSHOT, extraction, part, snapshot


def view(**fields: Any) -> SessionView:
    """Six turns, four of them in a settled snapshot."""
    listed = ListedSnapshot(snapshot=snapshot(1, 4, settled=True), is_listed=False)
    whole = SessionView(
        session=SESSION,
        turns=[TurnMark(seq=seq, is_open=seq > 4) for seq in range(1, 7)],
        snapshots=[listed],
        extractions={SNAPSHOT: extraction(part(), outcome=Outcome.RECORDS)},
        gaps=frozenset(),
    )
    return replace(whole, **fields)


def findings(**fields: Any) -> list[tuple[str, str]]:
    return list(session_findings(view(**fields)))


def test_a_whole_session_breaks_no_law() -> None:
    assert findings() == []


def test_a_snapshot_that_waits_where_it_is_listed_breaks_no_law() -> None:
    waiting = ListedSnapshot(snapshot=snapshot(1, 4), is_listed=True)

    assert findings(snapshots=[waiting], extractions={}) == []


def test_a_recorded_gap_breaks_no_law() -> None:
    marks = [TurnMark(seq=seq, is_open=seq > 4) for seq in (1, 3, 4, 5)]

    assert findings(turns=marks, gaps=frozenset({2})) == []
    assert findings(turns=marks) == [("I1", "turn 2 is missing")]


@pytest.mark.parametrize(
    ("second", "finding"),
    [
        (snapshot(6, 6), "gap before the snapshot at 6"),
        (snapshot(4, 6), "overlap before the snapshot at 4"),
        (snapshot(5, 9), "the snapshots end at 9, the turns at 6"),
    ],
)
def test_snapshots_that_do_not_tile_break_the_first_law(second: Any, finding: str) -> None:
    both = [
        ListedSnapshot(snapshot=snapshot(1, 4, settled=True), is_listed=False),
        ListedSnapshot(
            snapshot=second.model_copy(update={"snapshot_id": "snp_" + "c" * 32}), is_listed=True
        ),
    ]

    assert ("I1", finding) in findings(snapshots=both)


def test_a_turn_after_the_cut_that_is_not_open_breaks_the_first_law() -> None:
    marks = [TurnMark(seq=seq, is_open=False) for seq in range(1, 7)]

    assert ("I1", "turn 5 is after the cut and not open") in findings(turns=marks)


def test_a_snapshot_that_is_lost_between_states_breaks_the_second_law() -> None:
    unlisted = ListedSnapshot(snapshot=snapshot(1, 4), is_listed=False)

    assert findings(snapshots=[unlisted], extractions={}) == [
        ("I2", "the snapshot at 1 is pending and nowhere listed")
    ]
    assert findings(extractions={}) == [("I2", "the snapshot at 1 is settled without an outcome")]


def embedding_of(*stored: str, model: str = "m", **fields: Any) -> list[tuple[str, str]]:
    """Look at a record that says two things; vectors are those of the texts named."""
    said = [assertion("Lives in Oslo.", on=1), assertion("Lives in Rome.", on=2)]
    record = Record(
        record_id=said[0].slot,
        scope=said[0].scope,
        kind=said[0].kind,
        runs=folded(*said),
        rev=3,
    )
    embedding = Embedding(state=EmbeddingState.EMBEDDED, model="m")
    view = EmbeddingView(
        found=Embedded(owner=record, embedding=embedding.model_copy(update=fields)),
        vectors={model: frozenset(content_hash(text) for text in stored)},
    )
    return list(embedding_findings(view))


def test_a_record_with_the_vectors_of_its_texts_breaks_no_law() -> None:
    assert embedding_of("Lives in Oslo.", "Lives in Rome.") == []


def test_a_refused_text_breaks_no_law_and_a_missing_vector_does() -> None:
    refused = (content_hash("Lives in Rome."),)

    assert embedding_of("Lives in Oslo.", refused=refused) == []
    assert embedding_of("Lives in Oslo.") == [("I9", "texts without a vector, and not refused: 1")]


def test_a_vector_of_what_was_forgotten_breaks_a_law_whatever_its_model() -> None:
    found = embedding_of(
        "Lives in Lima.",
        model="another",
        refused=tuple(content_hash(text) for text in ("Lives in Oslo.", "Lives in Rome.")),
    )

    assert found == [("I8", "vectors of what the record does not say: 1")]
    assert embedding_of("Lives in Lima.", state=EmbeddingState.PENDING) == []
