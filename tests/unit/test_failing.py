"""A command's last line says what to do."""

import errno
import os

import pytest

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


def test_what_has_no_advice_says_where_it_failed() -> None:
    """It may be any file, also one that the user named."""
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "talk.jsonl")

    assert message_of(missing) == "talk.jsonl: No such file or directory"
    assert message_of(OSError()) == "the system: OSError"
