"""An item that can't be mended keeps none behind it from being mended."""

import pytest
from pymongo.errors import AutoReconnect
from structlog.testing import capture_logs

from pipeline.errors import BrokerUnavailableError
from pipeline.sweeping import mend_each


async def test_one_item_that_fails_keeps_no_other_from_being_mended() -> None:
    mended: list[int] = []

    async def mend(item: int) -> None:
        if item == 1:
            raise ValueError("the secret word")
        mended.append(item)

    with capture_logs() as logs:
        assert await mend_each([1, 2, 3], mend, sweep="dirty_slots") == 2

    assert mended == [2, 3]
    assert [(log["event"], log["sweep"], log["exception"]) for log in logs] == [
        ("item_not_mended", "dirty_slots", "ValueError")
    ]
    assert "secret" not in str(logs)


@pytest.mark.parametrize("gone", [BrokerUnavailableError(), AutoReconnect()])
async def test_without_its_services_a_sweep_ends_at_once(gone: Exception) -> None:
    tried: list[int] = []

    async def mend(item: int) -> None:
        tried.append(item)
        raise gone

    with pytest.raises(type(gone)):
        await mend_each([1, 2], mend, sweep="dirty_slots")

    assert tried == [1]
