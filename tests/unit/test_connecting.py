"""What is said of an address: where it is, and nothing that lets anybody in."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from cli.connecting import absence, advice, mongo_address
from cli.environment import settings_for
from compose.data_lock import data_lock, is_held
from pipeline.settings import MongoSettings

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("mongodb://127.0.0.1:27017", "127.0.0.1:27017"),
        ("mongodb://a:1,b:2/db?replicaSet=r", "a:1,b:2"),
        ("mongodb://ana:hunter2@a:1,b:2/?w=majority", "a:1,b:2"),
        ("mongodb+srv://ana:hunter2@cluster.example", "cluster.example"),
        ("mongodb://ana:hunter2@[::1]:27017/", "[::1]:27017"),
        ("mongodb://ana:hunter2", "the address in AFTERTURN_MONGO__URI"),
        ("mongodb://ana:12/hunter2@host", "the address in AFTERTURN_MONGO__URI"),
    ],
)
def test_the_hosts_are_named_without_the_credentials(uri: str, address: str) -> None:
    assert mongo_address(MongoSettings(uri=SecretStr(uri))) == address


@given(
    st.text(st.sampled_from(":@/?#&%=,x"), max_size=6),
    st.text(st.sampled_from(":@/?#&%=,x"), max_size=6),
)
def test_no_part_of_a_password_is_shown_however_wrong_it_is_written(
    before: str, after: str
) -> None:
    uri = f"mongodb://ana:{before}{SECRET}{after}@host:27017/db"

    assert SECRET not in mongo_address(MongoSettings(uri=SecretStr(uri)))


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory as an `up` leaves it that is killed; its addresses answer nobody."""
    monkeypatch.delenv("AFTERTURN_MONGO__URI", raising=False)
    addresses = {"mongo_uri": "mongodb://127.0.0.1:1", "kafka": "127.0.0.1:1"}
    (tmp_path / "services.json").write_text(json.dumps(addresses))
    return tmp_path


async def test_the_addresses_of_an_up_count_while_it_lives(killed: Path) -> None:
    async with data_lock(killed):
        alive = settings_for(killed)
        assert await absence(alive, killed) is None

    assert is_held(killed) is False
    assert mongo_address(alive.mongo) == "127.0.0.1:1"
    assert mongo_address(settings_for(killed).mongo) != "127.0.0.1:1"


async def test_of_an_up_that_runs_nobody_is_told_to_start_it(killed: Path) -> None:
    """A second one would be refused: what helps is its log, or ending it first."""
    async with data_lock(killed):
        told = advice(killed)

    assert "its log" in told
    assert f"start it again with `./afterturn up --data-dir {killed}`" in told
    assert "its log" not in advice(killed)


async def test_an_up_that_was_killed_is_known_without_waiting(killed: Path) -> None:
    began = time.monotonic()
    absent = await absence(settings_for(killed), killed)

    assert absent is not None
    assert "was killed" in absent
    assert f"`./afterturn up --data-dir {killed}`" in absent
    assert "AFTERTURN_MONGO__URI" in absent
    assert time.monotonic() - began < 2


async def test_a_server_that_is_named_is_always_asked(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFTERTURN_MONGO__URI", "mongodb://127.0.0.1:1")

    assert await absence(settings_for(killed), killed) is None


async def test_a_lock_is_seen_and_not_disturbed(tmp_path: Path) -> None:
    assert is_held(tmp_path / "nowhere") is False

    async with data_lock(tmp_path):
        assert is_held(tmp_path) is True
        assert is_held(tmp_path) is True
    async with data_lock(tmp_path):
        pass
