"""The HTTP server as a part of a process: started and stopped with the others."""

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from ipaddress import ip_address
from typing import Final
from uuid import uuid4

import structlog
import uvicorn
from pymongo import timeout
from starlette.types import ASGIApp

from api.access import CONSOLE, Gatekeeper, rate_of
from api.app import application
from api.console.app import console
from api.console.bulk import Bulk
from api.console.figures import Figures
from api.console.pages import Pages
from api.console.parts import ConsoleParts
from api.console.session import FORMS_PURPOSE, FormTokens
from api.hosts import OwnHost
from api.parts import Parts
from consumers.reading_wiring import searcher
from consumers.recording_wiring import recorder
from consumers.wiring import Installation
from pipeline.access.quotas import Quota
from pipeline.access.rates import Buckets
from pipeline.access.rights import HASHING_PURPOSE, Secrets
from pipeline.access.signing_in import Authenticator, Logins
from pipeline.access.tokens import SIGNING_PURPOSE, Tokens
from pipeline.errors import ConfigurationError
from pipeline.reading.reranking import reranker_from
from pipeline.reading.searching import Searcher
from pipeline.saving.direct import Saver
from pipeline.settings import HttpSettings
from pipeline.stores.accounts import MongoAccounts
from pipeline.stores.executions import MongoExecutions
from pipeline.stores.operator_actions import MongoOperatorActions
from pipeline.stores.usage import MongoUsage

PING_TIMEOUT: Final = timedelta(seconds=2)
GRACE: Final = timedelta(seconds=5)
"""How much longer than one command of the database a request under way may take at a stop."""

log = structlog.get_logger(__name__)


class HttpApp:
    """Serves HTTP from `start` to `stop`.

    A stop takes no new connection, and answers what was asked before it ends.
    """

    def __init__(
        self, application: ASGIApp, settings: HttpSettings, *, stop_within: timedelta
    ) -> None:
        self.application = application
        """What it serves."""
        self._settings = settings
        self._server = _Server(
            uvicorn.Config(
                application,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=int(stop_within.total_seconds()),
            )
        )
        self._socket: socket.socket | None = None
        self.address = ""
        """Where it is reached, once it is open."""
        self._serving: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Take the address, on a free port where 0 is asked for.

        Raises:
            ConfigurationError: It can't be had, or is open to others while nobody need sign in.
        """
        host, port = self._settings.host, self._settings.port
        if self._settings.auth == "off" and not _is_loopback(host):
            raise ConfigurationError(
                f"AFTERTURN_HTTP__HOST is {host}, where others may be, but nobody need sign in: set"
                " AFTERTURN_HTTP__AUTH=on and make accounts with `./afterturn accounts create`, or"
                " bind it to a loopback address such as 127.0.0.1"
            )
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Named as TCP, or asyncio leaves Nagle's delay on: 40 ms for an answer in two packets.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
        except OSError as error:
            listening.close()
            raise ConfigurationError(
                f"the HTTP server can't listen on {host}:{port} ({error.strerror}): change "
                "AFTERTURN_HTTP__HOST or AFTERTURN_HTTP__PORT"
            ) from error
        self._socket = listening
        bound = int(listening.getsockname()[1])
        self.address = f"http://[{host}]:{bound}" if ":" in host else f"http://{host}:{bound}"
        log.info("http_served", address=self.address)

    async def start(self) -> None:
        """Begin to answer."""
        if self._socket is None:
            self.open()
        sockets = [self._socket] if self._socket is not None else None
        self._serving = asyncio.create_task(self._server.serve(sockets=sockets), name="http")
        await self._server.is_serving.wait()

    async def stop(self) -> None:
        """Answer what is under way, then end."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving

    def lasting(self) -> list[asyncio.Task[None]]:
        """Return what answers."""
        return [] if self._serving is None else [self._serving]


class _Server(uvicorn.Server):
    """Leaves signals to the process it is a part of."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_serving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, and say so."""
        await super().startup(sockets=sockets)
        self.is_serving.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take none."""
        yield


@asynccontextmanager
async def http_app(
    parts: Installation, *, searching: Searcher | None = None
) -> AsyncGenerator[HttpApp]:
    """Yield the HTTP server of an installation, ready to be started.

    Args:
        parts: What it works with.
        searching: What searches; by default as the settings say.
    """
    async with recorder(parts) as recording, AsyncExitStack() as opened:
        searches = searching or await opened.enter_async_context(searcher(parts))
        reranker = reranker_from(parts.settings.rerank)
        if reranker is not None:
            opened.push_async_callback(reranker.aclose)

        async def ping() -> None:
            with timeout(PING_TIMEOUT.total_seconds()):
                await parts.database.client.admin.command("ping")

        settings = parts.settings
        quota = Quota(
            settings.http.project_writes_per_day,
            usage=MongoUsage(parts.database),
            server_time=parts.server_time,
            monotonic=time.monotonic,
        )
        served = Parts(
            recorder=recording,
            saver=Saver(
                folder=parts.folder,
                records=parts.records,
                ids=parts.ids,
                server_time=parts.server_time,
                new_name=lambda: uuid4().hex,
            ),
            forgetter=parts.forgetter,
            records=parts.records,
            searcher=searches,
            reranker=reranker,
            executions=MongoExecutions(parts.database, parts.ids),
            projects=parts.projects,
            logins=_logins(parts),
            gatekeeper=_gatekeeper(parts) if settings.http.auth == "on" else None,
            quota=quota,
            metrics=parts.metrics,
            exporter=parts.exporter,
            ping=ping,
        )
        app = application(served)
        figures, bulk = Figures(parts), Bulk(parts.clock.now)
        opened.push_async_callback(figures.close)
        opened.push_async_callback(bulk.close)
        app.mount(CONSOLE, console(_console(parts, served, figures, bulk)))
        asked = app if settings.http.auth == "on" else OwnHost(app)
        try:
            yield HttpApp(asked, settings.http, stop_within=settings.mongo.timeout + GRACE)
        finally:
            await quota.close()


def _console(parts: Installation, served: Parts, figures: Figures, bulk: Bulk) -> ConsoleParts:
    tokens = FormTokens(parts.ids.derived_key(FORMS_PURPOSE))
    return ConsoleParts(
        installation=parts,
        logins=served.logins,
        gatekeeper=served.gatekeeper,
        tokens=tokens,
        pages=Pages(tokens),
        figures=figures,
        bulk=bulk,
    )


def _logins(parts: Installation) -> Logins:
    return Logins(
        accounts=MongoAccounts(parts.database),
        actions=MongoOperatorActions(parts.database),
        secrets=Secrets(parts.ids.derived_key(HASHING_PURPOSE)),
        tokens=Tokens(parts.ids.derived_key(SIGNING_PURPOSE)),
        server_time=parts.server_time,
        monotonic=time.monotonic,
        random=secrets.token_bytes,
        metrics=parts.metrics,
    )


def _gatekeeper(parts: Installation) -> Gatekeeper:
    return Gatekeeper(
        authenticator=Authenticator(
            accounts=MongoAccounts(parts.database),
            tokens=Tokens(parts.ids.derived_key(SIGNING_PURPOSE)),
            server_time=parts.server_time,
            monotonic=time.monotonic,
        ),
        buckets=Buckets(rate_of(parts.settings.http.requests_per_second)),
        monotonic=time.monotonic,
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
