"""Logging: one JSON line an event on stderr, with opaque ids only."""

import logging
import sys

import structlog


def configure_logs(level: str) -> None:
    """Send every event of ours as one JSON line to stderr, and of libraries only warnings.

    For composition roots: it changes the process's logging.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, force=True)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
