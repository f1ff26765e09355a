"""What reaches stderr: events, and nothing that a library quotes."""

import json
import subprocess
import sys

import pytest

CANARY = "CANARY-4410 is what somebody said"
WARNED = [
    "import warnings; warnings.warn(said, stacklevel=1)",
    "import warnings; warnings.warn(DeprecationWarning(said), stacklevel=1)",
    "import pydantic\n"
    "class Message(pydantic.BaseModel):\n    content: str\n"
    "Message.model_construct(content={'a': said}).model_dump()",
]


def run(code: str) -> str:
    """Return what a process of ours writes to stderr."""
    start = f"import sys; said = sys.argv[1]\nfrom pipeline.logs import configure_logs\n{code}"
    finished = subprocess.run(  # noqa: S603 (our own code)
        [sys.executable, "-W", "default", "-c", start, CANARY],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return finished.stderr


@pytest.mark.parametrize("code", WARNED)
def test_a_warning_is_an_event_without_its_words(code: str) -> None:
    """Its category and its place say enough to find it."""
    written = run(f"configure_logs('info')\n{code}")

    event = json.loads(written)
    assert event["event"] == "library_warning"
    assert event["category"].endswith("Warning")
    assert (bool(event["file"]), event["line"] > 0) == (True, True)
    assert "CANARY" not in written


def test_an_exception_is_logged_by_its_type() -> None:
    """Ours and a library's."""
    written = run(
        "import logging, structlog\n"
        "configure_logs('info')\n"
        "try:\n    raise KeyError(said)\n"
        "except KeyError:\n"
        "    structlog.get_logger().exception('failed')\n"
        "    logging.getLogger('library').exception('failed')\n"
    )

    assert written.count("KeyError") == 2
    assert "CANARY" not in written
