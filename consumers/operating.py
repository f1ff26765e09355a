"""The composition root of what operators work with, by command line and console alike."""

from uuid import uuid4

from consumers.wiring import Installation
from pipeline.letters.desk import LetterDesk
from pipeline.stores.deliveries import MongoDeliveries
from pipeline.stores.operator_actions import MongoOperatorActions


def letter_desk(parts: Installation, *, by: str) -> LetterDesk:
    """Return what sends letters back, discards and restores them.

    Args:
        parts: What it shares.
        by: Who does it, for the audit trail.
    """
    return LetterDesk(
        letters=parts.letters,
        extractions=parts.extractions,
        snapshots=parts.snapshots,
        turns=parts.turns,
        deliveries=MongoDeliveries(parts.database),
        fates=parts.fates,
        publisher=parts.publisher,
        actions=MongoOperatorActions(parts.database),
        server_time=parts.server_time,
        clock=parts.clock,
        lost_after=parts.settings.waker.lost_after,
        new_name=lambda: uuid4().hex,
        by=by,
    )
