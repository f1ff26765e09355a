"""The failures that a command may end with, each as a line that says what to do."""

import errno
from typing import Final

from pymongo.errors import ConfigurationError as MongoConfigurationError
from pymongo.errors import InvalidName, InvalidURI, OperationFailure, PyMongoError

from compose.errors import ServiceError
from pipeline.errors import AfterturnError

MISADDRESSED: Final = (InvalidName, InvalidURI, MongoConfigurationError)
"""What no server answers, since none can be asked like this."""
_ADVICE: Final = {
    errno.ENOSPC: "free some; what was recorded is safe, and the same command goes on from here",
    errno.EROFS: "name a place that can be written to with `--data-dir`",
}
KNOWN: Final = (AfterturnError, ServiceError, PyMongoError, OSError)


def refusal(error: OperationFailure) -> str:
    """Return what is said of a MongoDB that answers, and refuses what it was asked."""
    return (
        f"refuses a command ({type(error).__name__}, code {error.code}): see whether its disk is"
        " full, and whether the user in AFTERTURN_MONGO__URI may do this"
    )


def message_of(error: Exception) -> str:
    """Return what a known failure tells its user."""
    match error:
        case InvalidName() | InvalidURI() | MongoConfigurationError():
            return (
                f"MongoDB can't be addressed like this ({type(error).__name__}): correct"
                " AFTERTURN_MONGO__URI or AFTERTURN_MONGO__DATABASE"
            )
        case OperationFailure():
            return f"MongoDB {refusal(error)}"
        case PyMongoError():
            return (
                f"MongoDB does not answer ({type(error).__name__}). Is it running, and does"
                " AFTERTURN_MONGO__URI name it? `./afterturn doctor` tells more."
            )
        case OSError():
            where = error.filename or "the system"
            advice = _ADVICE.get(error.errno or 0)
            what = f"{where}: {error.strerror or type(error).__name__}"
            return what if advice is None else f"{what}: {advice}"
        case _:
            return str(error)
