"""What a process says of itself over HTTP: `/metrics`, `/live` and `/ready`.

It is served from threads, so that a process whose event loop is blocked still says so. What needs
the loop is asked of it for a bounded time.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeVar

import structlog
from pymongo.errors import PyMongoError

from consumers.exporting import CONTENT_TYPE, PrometheusExporter
from consumers.health_loop import LoopWatch
from consumers.health_progress import ProgressWatch
from consumers.health_readiness import CHECK_TIMEOUT, Condition, Dependency, conditions
from pipeline.ending import end
from pipeline.errors import ConfigurationError

T = TypeVar("T")

MEASURE_TIMEOUT: Final = timedelta(seconds=3)
"""How long a page of metrics waits for what is read from MongoDB; then it goes without."""
CONNECTION_TIMEOUT: Final = timedelta(seconds=5)
_LOOP_GRACE: Final = timedelta(seconds=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What liveness goes by."""

    loop: LoopWatch
    progress: ProgressWatch
    blocked_limit: timedelta
    """A loop that was blocked for longer has lost its membership: restart it."""

    def problems(self) -> list[str]:
        """Return why the process should be restarted; nothing while it should not."""
        found = [
            f"{name}: there is work and nothing has moved for too long"
            for name in self.progress.stalled
        ]
        blocked = self.loop.blocked_for
        if blocked > self.blocked_limit:
            found.append(f"the event loop is blocked for {blocked.total_seconds():.0f} s")
        return found


class Health:
    """Serves what a process says of itself, from `open` to `close`.

    As a `Runnable` among the process's others it watches their progress, and from `stop` on the
    process is not ready.
    """

    def __init__(
        self,
        *,
        vitals: Vitals,
        dependencies: Sequence[Dependency],
        exporter: PrometheusExporter,
        measure: Callable[[], Awaitable[None]],
        look_interval: timedelta,
    ) -> None:
        """Bring the parts together, on the event loop; nothing is served yet.

        Args:
            vitals: What liveness goes by.
            dependencies: What readiness goes by.
            exporter: Holds the metrics.
            measure: Reads from MongoDB what is measured, not counted.
            look_interval: How long to wait between two looks at the consumers' progress.
        """
        self._vitals = vitals
        self._dependencies = tuple(dependencies)
        self._exporter = exporter
        self._measure = measure
        self._look_interval = look_interval
        self._loop = asyncio.get_running_loop()
        self._server: ThreadingHTTPServer | None = None
        self._looking: asyncio.Task[None] | None = None
        self._is_stopping = False

    def open(self, host: str, port: int) -> int:
        """Begin to serve; return the port, which is a free one where 0 is asked for.

        Raises:
            ConfigurationError: The address can't be had.
        """
        try:
            self._server = _Server((host, port), _handler(self))
        except OSError as error:
            raise ConfigurationError(
                f"the health endpoint can't listen on {host}:{port} ({error.strerror}): change "
                "AFTERTURN_HEALTH__HOST or AFTERTURN_HEALTH__PORT"
            ) from error
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()
        bound = int(self._server.server_address[1])
        log.info("health_served", host=host, port=bound)
        return bound

    async def close(self) -> None:
        """Serve no more."""
        if self._server is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()

    async def start(self) -> None:
        """Watch progress."""
        self._looking = asyncio.create_task(self._look(), name="progress watch")

    async def stop(self) -> None:
        """Be not ready any more, and watch no more; serving goes on."""
        self._is_stopping = True
        if self._looking is not None:
            await end([self._looking])

    def lasting(self) -> list[asyncio.Task[None]]:
        """Return the watch over progress, which liveness goes by."""
        return [] if self._looking is None else [self._looking]

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._look_interval.total_seconds())
            await self._vitals.progress.look()

    # What is answered, in a thread of the server

    def metrics(self) -> bytes:
        """Return the page of metrics; what MongoDB can't tell now stays as it was."""
        with suppress(FutureTimeoutError, TimeoutError, PyMongoError):
            self._ask(self._measured(), MEASURE_TIMEOUT)
        return self._exporter.page()

    def live(self) -> tuple[HTTPStatus, dict[str, Any]]:
        """Return whether the process should go on."""
        problems = self._vitals.problems()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return status, {"live": not problems, "problems": problems}

    def ready(self) -> tuple[HTTPStatus, dict[str, Any]]:
        """Return whether the process can do its work, by dependency."""
        try:
            found = self._ask(conditions(self._dependencies), CHECK_TIMEOUT)
        except (FutureTimeoutError, TimeoutError):
            found = {
                "process": Condition(
                    state="unreachable",
                    detail="its event loop does not turn",
                    action="see `event_loop_blocked` in the log; restart it if it goes on",
                )
            }
        if self._is_stopping:
            found["process"] = Condition(
                state="wrong", detail="it is stopping", action="none: it ends by itself"
            )
        is_ready = all(condition.state == "well" for condition in found.values())
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        dependencies = {name: asdict(condition) for name, condition in found.items()}
        return status, {"ready": is_ready, "dependencies": dependencies}

    async def _measured(self) -> None:
        async with asyncio.timeout(MEASURE_TIMEOUT.total_seconds()):
            await self._measure()

    def _ask(self, work: Coroutine[Any, Any, T], timeout: timedelta) -> T:
        """Return what the event loop makes of something.

        Raises:
            FutureTimeoutError: It did not in time.
        """
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return asked.result((timeout + _LOOP_GRACE).total_seconds())
        finally:
            asked.cancel()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


def _handler(health: Health) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = CONNECTION_TIMEOUT.total_seconds()

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    self._answer(HTTPStatus.OK, CONTENT_TYPE, health.metrics())
                case "/live":
                    self._answer_json(*health.live())
                case "/ready":
                    self._answer_json(*health.ready())
                case _:
                    self._answer_json(
                        HTTPStatus.NOT_FOUND, {"there_are": ["/metrics", "/live", "/ready"]}
                    )

        def _answer_json(self, status: HTTPStatus, said: dict[str, Any]) -> None:
            self._answer(status, "application/json", json.dumps(said).encode() + b"\n")

        def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a probe comes every few seconds."""

    return Handler
