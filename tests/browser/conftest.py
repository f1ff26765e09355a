"""A real Chromium for the console's flows; what it saw is kept in `test-output/`."""

import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import BrowserContext, Page, async_playwright

from tests.services import unavailable

OUTPUT: Final = Path(__file__).parents[2] / "test-output" / "console"
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
Shoot = Callable[[Page, str], Awaitable[None]]


@pytest.fixture
async def chromium(tmp_path: Path) -> AsyncGenerator[BrowserContext]:
    """A Chromium of this test's own."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        unavailable("there is no chromium: install Debian's package of that name")
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            tmp_path / "chromium",
            executable_path=found,
            headless=True,
            args=list(FLAGS),
            viewport={"width": 1280, "height": 860},
            color_scheme="light",
        )
        context.set_default_timeout(15_000)
        try:
            yield context
        finally:
            await context.close()


@pytest.fixture
def shoot() -> Shoot:
    """Keep what a page looks like."""

    async def taken(page: Page, name: str) -> None:
        OUTPUT.mkdir(parents=True, exist_ok=True)
        await page.screenshot(path=OUTPUT / f"{name}.png", full_page=True)

    return taken
