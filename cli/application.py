"""All commands, and what a command's failure looks like."""

import signal
import sys
from typing import NoReturn

import typer
from pydantic import ValidationError
from pymongo.errors import PyMongoError

from cli import bench, checking, demonstrating, doctoring, importing, serving, status
from compose.errors import ServiceError
from pipeline.errors import AfterturnError

application = typer.Typer(
    name="afterturn",
    help="A self-hosted memory server for AI agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for module in (demonstrating, serving, importing, checking, doctoring, status, bench):
    module.register(application)


def main() -> None:
    """Run a command; a failure we know is one line that says what to do, and exit code 1."""
    # A shell that starts us in the background has us ignore it, and nobody could end us in order.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        application()
    except (AfterturnError, ServiceError) as error:
        _fail(str(error))
    except ValidationError as error:
        problems = (
            f"AFTERTURN_{'__'.join(str(step).upper() for step in problem['loc'])}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_url=False)
        )
        _fail("the settings can't be used: " + "; ".join(problems))
    except PyMongoError as error:
        _fail(
            f"MongoDB does not answer ({type(error).__name__}). Is it running, and does"
            " AFTERTURN_MONGO__URI name it? `./afterturn doctor` tells more."
        )


def _fail(message: str) -> NoReturn:
    print(f"afterturn: {message}", file=sys.stderr)
    sys.exit(1)
