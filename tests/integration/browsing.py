"""A browser of the console as far as a test of pages needs one: cookies, forms, no script."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount

from api.console.session import CONSOLE
from tests.integration.serving import Server
from tests.integration.signing import Credentials

_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')
_TAG = re.compile(r"<[^>]+>")


class Browser:
    """One person's browser: it sends what its last page holds, from where that page is."""

    def __init__(self, http: httpx.AsyncClient, origin: str) -> None:
        self.http = http
        self.origin = origin
        self.form_token = ""

    async def open(self, path: str, **query: Any) -> httpx.Response:
        """Go to a page, wherever it leads."""
        page = await self.http.get(f"{CONSOLE}{path}", params=query or None, follow_redirects=True)
        self._read(page)
        return page

    async def send(self, path: str, *, follow: bool = True, **fields: Any) -> httpx.Response:
        """Send a form of the page that is open."""
        page = await self.http.post(
            f"{CONSOLE}{path}",
            data={"form_token": self.form_token, **fields},
            headers={"Origin": self.origin, "Sec-Fetch-Site": "same-origin"},
            follow_redirects=follow,
        )
        self._read(page)
        return page

    async def sign_in(self, credentials: Credentials) -> httpx.Response:
        """Sign in by the form."""
        await self.open("/login")
        return await self.send(
            "/login", client_id=credentials.client_id, client_secret=credentials.secret, next=""
        )

    def _read(self, page: httpx.Response) -> None:
        if found := _TOKEN.search(page.text):
            self.form_token = found[1]


@asynccontextmanager
async def browser(server: Server, **headers: str) -> AsyncGenerator[Browser]:
    """Yield a browser that knows nobody yet."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30, headers=headers) as http:
        yield Browser(http, server.url)


def console_app(server: Server) -> FastAPI:
    """Return the application of the console."""
    app = server.app.application
    assert isinstance(app, FastAPI)
    (mount,) = (each for each in app.routes if isinstance(each, Mount) and each.path == CONSOLE)
    assert isinstance(mount.app, FastAPI)
    return mount.app


def pages(server: Server, verb: str) -> list[str]:
    """Return the path of every page that answers a verb, with `some` where an id stands."""
    return sorted(
        re.sub(r"\{\w+\}", "some", str(route.path))
        for route in iter_route_contexts(console_app(server).routes)
        if verb in (route.methods or ())
    )


def read(page: httpx.Response) -> str:
    """Return the words of a page, in one line."""
    return " ".join(unescape(_TAG.sub(" ", page.text)).split())
