"""Logging: one JSON line an event on stderr, with opaque ids only.

What an exception or a warning says may quote a conversation, so only its type is ever written.
"""

import logging
import sys
import warnings
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog


class _TypesOnly(logging.Formatter):
    """Formats libraries' warnings without what their exceptions say."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 (the library's name)
        return f"exception={ei[0].__module__}.{ei[0].__qualname__}"

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 (the same)
        return ""


def _exception_type(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace an exception by its type."""
    raised = event.pop("exc_info", None)
    if raised is True:
        raised = sys.exc_info()[1]
    if isinstance(raised, BaseException):
        event["exception"] = f"{type(raised).__module__}.{type(raised).__qualname__}"
    return event


def _log_warning(
    _message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    _file: TextIO | None = None,
    _line: str | None = None,
) -> None:
    """Log where a warning comes from; the line of code it would quote is not looked up either."""
    structlog.get_logger().warning(
        "library_warning",
        category=f"{category.__module__}.{category.__qualname__}",
        file=filename,
        line=lineno,
    )


def configure_logs(level: str) -> None:
    """Send our events as JSON lines to stderr, and of libraries only warnings.

    Python's own warnings become events too. For composition roots: it changes the process's
    logging.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TypesOnly("%(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    warnings.showwarning = _log_warning
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _exception_type,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
