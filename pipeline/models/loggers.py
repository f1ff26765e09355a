"""The loggers of vendors' clients, which quote what people said."""

import logging
from typing import Final

VENDOR_LOGGERS: Final = (
    *("instructor", "openai", "anthropic", "google_genai", "google.genai", "google.auth"),
    *("httpx2", "httpcore2"),
)


def quiet_vendor_loggers() -> None:
    """Let the libraries between us and a model log nothing: what they log quotes conversations."""
    for name in VENDOR_LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL + 1)
        # A level alone would not last: OPENAI_LOG sets another one.
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
