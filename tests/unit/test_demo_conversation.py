"""The demo's conversation has what it is to show, whatever the seed, and the rules find it."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from compose.demo_conversation import DemoTurn, demo_truth, demo_turns
from compose.offline.rules import SpokenTurn, remember
from pipeline.extracting.redaction import holds_secret

SEEDS = (None, *range(50))


def _answers(turns: Sequence[DemoTurn]) -> dict[str, dict[str, Any]]:
    """Extract each session by itself, as a snapshot is."""
    sessions = {turn.session_id: turn.user_id for turn in turns}
    return {
        session_id: remember(
            [
                SpokenTurn(seq=seq, role=turn.role, content=turn.content, at=turn.created_at)
                for seq, turn in enumerate(
                    (turn for turn in turns if turn.session_id == session_id), start=1
                )
            ]
        ).as_answer()
        for session_id in sessions
    }


def _places(answer: dict[str, Any], *, label: str) -> list[tuple[str, str, str]]:
    return [
        (item["subject"], item["attribute"], item["relation"])
        for item in answer["semantic"]
        if item["label"] == label
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_a_conversation(seed: int | None) -> None:
    """Three sessions of two people, in turn and in order, in the past."""
    turns = demo_turns(seed)

    assert len(turns) >= 60
    assert len({turn.session_id for turn in turns}) == 3
    assert len({turn.user_id for turn in turns}) == 2
    assert all(earlier.created_at < later.created_at for earlier, later in pairwise(turns))
    assert turns[-1].created_at < datetime(2026, 6, 1, tzinfo=UTC)
    assert all("<" not in turn.content and turn.content for turn in turns)
    for earlier, later in pairwise(turns):
        if earlier.session_id == later.session_id:
            assert earlier.role != later.role
        else:
            assert later.role == "user"


def test_the_same_seed_is_the_same_conversation() -> None:
    """And another seed is another one."""
    assert demo_turns(7) == demo_turns(7)
    assert demo_truth(7) == demo_truth(7)
    assert demo_turns(7) != demo_turns(8)
    assert demo_turns() == demo_turns(None)


def test_seeds_change_words_and_order() -> None:
    """So that nothing is fitted to the shipped text."""
    truths = [demo_truth(seed) for seed in range(50)]
    orders = {tuple("misspoke" in turn.content for turn in demo_turns(seed)) for seed in range(50)}

    assert len({truth.secret for truth in truths}) == 50
    assert len({truth.corrected_to for truth in truths}) > 5
    assert len(orders) > 5
    assert all(truth.corrected_from != truth.corrected_to for truth in truths)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_corrected_home_lands_on_the_first(seed: int | None) -> None:
    """Said in another session, found on the same subject and attribute."""
    truth = demo_truth(seed)
    answers = _answers(demo_turns(seed))

    assert _places(answers["demo-first"], label=truth.corrected_from) == [("user", "home", "adds")]
    assert _places(answers["demo-later"], label=truth.corrected_to) == [
        ("user", "home", "corrects")
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_secret_is_said_and_never_remembered(seed: int | None) -> None:
    """Nor is any part of it that tells it."""
    truth = demo_truth(seed)
    turns = demo_turns(seed)
    text = json.dumps(list(_answers(turns).values()), ensure_ascii=False)

    assert any(truth.secret in turn.content for turn in turns)
    assert holds_secret(truth.secret)
    assert truth.secret[8:20] not in text


@pytest.mark.parametrize("seed", SEEDS)
def test_what_coexists_is_added(seed: int | None) -> None:
    """Two drinks in each language, and neither closes the other."""
    truth = demo_truth(seed)
    answers = _answers(demo_turns(seed))
    facts = [item for answer in answers.values() for item in answer["semantic"]]

    for drink in (*truth.liked, *truth.chinese_liked):
        relations = {item["relation"] for item in facts if drink in item["label"]}
        assert relations == {"adds"}, drink


@pytest.mark.parametrize("seed", SEEDS)
def test_the_other_kinds_are_found_too(seed: int | None) -> None:
    """A procedure and a term and an episode, and no more than were told."""
    truth = demo_truth(seed)
    answers = _answers(demo_turns(seed))

    assert [item["name"] for item in answers["demo-first"]["procedural"]] == [truth.procedure]
    assert [item["term"] for item in answers["demo-first"]["taxonomic"]] == [truth.term]
    assert len(answers["demo-later"]["episodic"]) == 1
    assert len(answers["demo-chinese"]["procedural"]) == 1
    assert _places(answers["demo-chinese"], label=truth.chinese_home) == [("user", "home", "adds")]


def test_small_talk_leaves_nothing() -> None:
    """The shipped text yields these facts, and none besides."""
    labels = {
        session_id: [item["label"] for item in answer["semantic"]]
        for session_id, answer in _answers(demo_turns()).items()
    }

    assert labels == {
        "demo-first": [
            "Maya", "Porto", "veterinarian", "green tea", "peanuts", "Ines", "Lyon"
        ],
        "demo-later": ["Braga", "espresso", "Biscuit", "visit Norway in September", "no meat"],
        "demo-chinese": [
            "林晓雨", "成都", "小学老师", "喝乌龙茶", "喝豆浆", "小雪", "芒果", "南京", "去敦煌旅游"
        ],
    }  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_other_words_yield_the_same_kinds_of_facts(seed: int | None) -> None:
    """The rules know forms, not the words of the demo."""

    def words(of: int | None) -> list[list[str]]:
        return [
            sorted(item["attribute"].partition(":")[0] for item in answer["semantic"])
            for answer in _answers(demo_turns(of)).values()
        ]

    assert words(seed) == words(None)
