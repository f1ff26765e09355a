"""How an embedding goes on: each step as the ledger's next state. Pure.

Who writes vectors says so first, and takes that back only when it has looked at the owner again
and deleted what is of no text any more. So as long as somebody may still write, the embedding stays
pending; and who died is known by its age.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from pipeline.embedding.ports import Owner, content_hash
from pipeline.reading.memories import Memory
from pipeline.reading.spoken import spoken
from schemas.embedding import Embedding, EmbeddingState, Writer
from schemas.failure import Attempt
from schemas.record import Record


def texts_of(owner: Owner) -> dict[str, str]:
    """Return what is embedded of an owner, by content hash: each text that holds words, once.

    Of a record also what is no longer current: whoever asks for history searches it.
    """
    if isinstance(owner, Record):
        texts = [Memory(record=owner, run=run).text for run in owner.runs]
    else:
        texts = [spoken(owner)]
    return {content_hash(text): text for text in texts if text.strip()}


def begun(embedding: Embedding, name: str, *, now_ms: int) -> Embedding:
    """Return the state in which a process may write vectors."""
    return _next(embedding, writers=(*embedding.writers, Writer(name=name, since_ms=now_ms)))


def left(embedding: Embedding, name: str) -> Embedding:
    """Return the state in which a process writes no more, and says nothing of how far it is."""
    return _next(embedding, writers=_others(embedding.writers, name))


def ended(
    embedding: Embedding,
    name: str,
    *,
    model: str,
    refused: Mapping[str, str],
    now_ms: int,
    grace: timedelta,
) -> Embedding:
    """Return the state in which the vectors of a model are those of the owner's texts.

    While another process may write still it is pending, to be looked at when that must be over.

    Args:
        embedding: As it was read after the vectors were written and cleaned.
        name: Who ends.
        model: Whose vectors they are.
        refused: Texts without a vector: content hash to reason.
        now_ms: Server time.
        grace: How long after its beginning a process may write; longer than the commands for it.
    """
    grace_ms = grace // timedelta(milliseconds=1)
    alive = tuple(
        writer for writer in _others(embedding.writers, name) if writer.since_ms > now_ms - grace_ms
    )
    if alive:
        return _next(embedding, writers=alive, due_ms=now_ms + grace_ms)
    return Embedding(
        state=EmbeddingState.REFUSED if refused else EmbeddingState.EMBEDDED,
        rev=embedding.rev + 1,
        model=model,
        refused=tuple(sorted(refused)),
        reason=next(iter(refused.values()), None),
        since_ms=embedding.since_ms,
        deaths=embedding.deaths,
    )


def waiting(
    embedding: Embedding, ticket: str, *, due_ms: int, now_ms: int, attempt: Attempt | None
) -> Embedding:
    """Return the state in which another message is the live one, from a moment on."""
    first_ms = embedding.first_failed_ms
    return _next(
        embedding,
        ticket=ticket,
        due_ms=due_ms,
        attempts=embedding.attempts if attempt is None else (*embedding.attempts, attempt),
        first_failed_ms=now_ms if first_ms is None and attempt is not None else first_ms,
    )


def dead(embedding: Embedding, reason: str, *, model: str) -> Embedding:
    """Return the state in which nothing is left to try."""
    return _next(
        embedding,
        state=EmbeddingState.DEAD,
        reason=reason,
        model=model,
        deaths=embedding.deaths + 1,
    )


def awake(embedding: Embedding, *, now_ms: int) -> Embedding:
    """Return the state after its live message was sent again.

    It is looked at again after twice its age each time, so that a long queue gets few copies.
    """
    return _next(embedding, due_ms=now_ms + max(0, now_ms - embedding.since_ms))


def again(embedding: Embedding, *, now_ms: int) -> Embedding:
    """Return the state in which it is to be done anew, whoever writes meanwhile."""
    return Embedding(
        state=EmbeddingState.PENDING,
        rev=embedding.rev + 1,
        writers=embedding.writers,
        since_ms=now_ms,
        due_ms=now_ms,
        deaths=embedding.deaths,
    )


def _others(writers: Iterable[Writer], name: str) -> tuple[Writer, ...]:
    return tuple(writer for writer in writers if writer.name != name)


def _next(embedding: Embedding, **changes: object) -> Embedding:
    return embedding.model_copy(update={**changes, "rev": embedding.rev + 1})
