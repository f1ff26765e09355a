"""The examples of the distribution's README run as they stand, one after the other."""

import re
from pathlib import Path
from typing import Any

import pytest

from afterturn import default
from tests.scripted_endpoint import ScriptedEndpoint, says
from tests.sdk.talking import contents, taking

README = (Path(__file__).parents[2] / "sdk" / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_examples_run_and_record(
    endpoint: ScriptedEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.always(says("Noted."))
    monkeypatch.chdir(tmp_path)
    with ScriptedEndpoint() as sent:
        taking(sent)
        environment = {
            "OPENAI_BASE_URL": endpoint.url,
            "OPENAI_API_KEY": "k",
            "ANTHROPIC_API_KEY": "k",
            "AGENTIC_MEMORY_BASE_URL": sent.url,
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        shared = list[Any]()
        monkeypatch.setattr(default, "_shared", shared)
        names: dict[str, Any] = {}
        for example in EXAMPLES:
            exec(example, names)  # noqa: S102 (it is what this test is about)
        (recorder,) = shared
        assert recorder.flush()
        recorder.close()
        said = contents(sent)

    assert len(EXAMPLES) == 3
    assert said == ["I'm allergic to penicillin.", "Noted."]
    assert names["without_numbers"]("off the record") is None
