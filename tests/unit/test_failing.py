"""A command's last line says what to do."""

import errno
import os

import pytest
from pymongo.errors import OperationFailure

from cli.failing import message_of


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "free some"), (errno.EROFS, "`--data-dir`")]
)
def test_of_a_disk_that_takes_nothing_it_says_where_and_what_to_do(
    number: int, advice: str
) -> None:
    told = message_of(OSError(number, os.strerror(number), "data/kafka"))

    assert told.startswith(f"data/kafka: {os.strerror(number)}: ")
    assert advice in told


def test_a_database_that_refuses_is_not_called_silent() -> None:
    """It answers: to start it would mend nothing. Its words may hold what was said."""
    told = message_of(OperationFailure("no space for 'I live in Porto'", code=14031))

    assert "refuses" in told
    assert "14031" in told
    assert "disk" in told
    assert "does not answer" not in told
    assert "Porto" not in told


def test_what_has_no_advice_says_where_it_failed() -> None:
    """It may be any file, also one that the user named."""
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "talk.jsonl")

    assert message_of(missing) == "talk.jsonl: No such file or directory"
    assert message_of(OSError()) == "the system: OSError"
