"""The way in: `./afterturn`, `python -m cli`."""

import os
import signal
from typing import NoReturn

from cli.output import INTERRUPTED, interrupted


def _leave(_signal: int, _frame: object) -> NoReturn:
    """End at once: nothing runs yet, and an exception would surface in somebody's import."""
    interrupted()
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    # Also because a shell that starts us in the background has us ignore it.
    signal.signal(signal.SIGINT, _leave)

    from cli.application import main

    main()
