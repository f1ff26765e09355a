"""Only requests that name this machine are answered while nobody need sign in."""

import pytest

from api.hosts import names_this_machine


@pytest.mark.parametrize(
    "host",
    [None, "", "localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "[::1]"],
)
def test_this_machine_is_named(host: str | None) -> None:
    assert names_this_machine(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8080",
        "notlocalhost",
        "[evil.example]",
        "[]",
        " ",
        "::1",
    ],
)
def test_another_is_named(host: str) -> None:
    assert not names_this_machine(host)
