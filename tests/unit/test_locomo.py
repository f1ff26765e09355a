"""Reading conversations in LoCoMo's format, for `bench recall`."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.locomo import conversations_of
from pipeline.errors import ConfigurationError

TALK: dict[str, Any] = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ana",
        "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "It was wet."}],
        "session_2_date_time": "12:05 am on 9 May, 2023",
        "session_1": [
            {"speaker": "Ana", "dia_id": "D1:1", "text": "I am off to Porto."},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "Lovely!", "blip_caption": "a harbour"},
        ],
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_3_date_time": "1:56 pm on 10 May, 2023",
    },
    "qa": [
        {"question": "Where to?", "evidence": ["D1:1; D2:1"], "category": 1},
        {"question": "When?", "evidence": ["D1:1", "D", "D9:9"], "category": 2},
        {"question": "Why?", "evidence": [], "category": 3},
        {"question": "Who?", "category": 4},
        {"question": "What?", "evidence": ["D:1"], "category": 5},
    ],
}


def test_turns_come_by_time_and_questions_whose_evidence_names_none_are_left_out(
    tmp_path: Path,
) -> None:
    file = tmp_path / "talks.json"
    file.write_text(json.dumps([TALK]))

    (talk,) = conversations_of(file)

    assert [one.turn for one in talk.said] == ["D1:1", "D1:2", "D2:1"]
    assert talk.said[0].content == "Ana: I am off to Porto."
    assert talk.said[0].said_at.isoformat() == "2023-05-08T13:56:00+00:00"
    assert talk.said == tuple(sorted(talk.said, key=lambda one: one.said_at))
    assert [(one.text, one.category, one.evidence) for one in talk.questions] == [
        ("Where to?", "multi-hop", {"D1:1", "D2:1"}),
        ("When?", "temporal", {"D1:1"}),
    ]
    assert talk.left_out == 3


@pytest.mark.parametrize("written", ["", "[1]", "{}x", '{"a": 1}', '[{"qa": []}]', "null"])
def test_another_format_is_refused_with_what_it_should_be(tmp_path: Path, written: str) -> None:
    file = tmp_path / "talks.json"
    file.write_text(written)

    with pytest.raises(ConfigurationError, match="LoCoMo's format"):
        conversations_of(file)
