"""All commands, and what a command's failure looks like."""

import signal
import sys
from typing import NoReturn

import typer
from pymongo.errors import ConfigurationError as MongoConfigurationError
from pymongo.errors import InvalidName, InvalidURI, PyMongoError

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
    except (InvalidName, InvalidURI, MongoConfigurationError) as error:
        _fail(
            f"MongoDB can't be addressed like this ({type(error).__name__}): correct"
            " AFTERTURN_MONGO__URI or AFTERTURN_MONGO__DATABASE"
        )
    except PyMongoError as error:
        _fail(
            f"MongoDB does not answer ({type(error).__name__}). Is it running, and does"
            " AFTERTURN_MONGO__URI name it? `./afterturn doctor` tells more."
        )
    except OSError as error:
        _fail(f"{error.filename or 'the system'}: {error.strerror or type(error).__name__}")


def _fail(message: str) -> NoReturn:
    print(f"afterturn: {message}", file=sys.stderr)
    sys.exit(1)
