"""Whether an embedder can do its work: found at the start, not at the first record."""

from typing import Final

import structlog

from pipeline.embedding.ports import ActiveModel, Embedder, Purpose, Refused
from pipeline.errors import ConfigurationError
from pipeline.failing.failures import action, classify
from pipeline.failing.reasons import remedy
from schemas.failure import Failure

PROBE: Final = "afterturn"
"""What is embedded to see whether it can be."""

log = structlog.get_logger()


async def probed(embedder: Embedder) -> Failure | None:
    """Ask for one vector; return what was wrong with the answer, or that there was none."""
    try:
        (answer,) = await embedder.embed([PROBE], Purpose.QUERY)
    except Exception as error:  # whatever it is, it is told in a class and a code
        return classify(error)
    if isinstance(answer, Refused):
        return Failure(failure_class=answer.failure_class, reason=answer.reason, exception="none")
    return None


async def check_embedder(embedder: Embedder, active: ActiveModel) -> None:
    """Make sure of an embedder before records are given to it.

    The first one of an installation is the one whose vectors readers search. Where that is another,
    it is said, and records wait until `reembed` has switched.

    Raises:
        ConfigurationError: It answers, and with nothing that can be used; the message says what.
        pymongo.errors.PyMongoError: Which model is active could not be read.
    """
    failure = await probed(embedder)
    if failure is not None:
        if not failure.failure_class.is_environmental:
            raise ConfigurationError(
                f"The embedder {embedder.model} is of no use ({failure.reason}): {mending(failure)}"
            )
        log.warning(
            "embedder_unreachable",
            model=embedder.model,
            failure_class=failure.failure_class,
            reason=failure.reason,
            advice="records wait for it; it is asked again by itself",
        )
        return
    model = await active.claim(embedder.model)
    if model != embedder.model:
        log.error(
            "embedding_model_not_active",
            configured=embedder.model,
            active=model,
            advice=not_active(model, embedder.model),
        )


def not_active(active: str, configured: str) -> str:
    """Return what to do where the vectors there are are those of another model."""
    return (
        f"the vectors that are searched are those of {active}, and {configured} is configured:"
        " run `./afterturn reembed` to build its vectors and switch, or set AFTERTURN_EMBEDDING__*"
        " back; until then new records get none"
    )


def mending(failure: Failure) -> str:
    """Return what to do about a failure, in a sentence."""
    return remedy(failure.reason) or action(failure)
