"""What an embedder answered, looked at before anything is made of it. Pure and total.

A wrong vector is worse than none: it is found for what it does not say, and nobody sees why.
"""

from typing import Final

import numpy as np

from pipeline.embedding.ports import Vector
from pipeline.errors import AnswerError
from pipeline.extracting.unchecked import field_of, list_of
from pipeline.failing.reasons import Reason
from schemas.failure import FailureClass

_NUMBERS: Final = (int, float)


def judged(answer: object, *, texts: int, dimension: int) -> list[Vector]:
    """Return the vectors of an answer in the protocol of OpenAI, in the order of the texts.

    Args:
        answer: `{"data": [{"index": 0, "embedding": [...]}, ...]}`. A list without any index is in
            order.
        texts: How many were asked for.
        dimension: How many numbers each must have.

    Raises:
        AnswerError: It is no such answer. What is wrong may be one text's doing, but for the
            dimension, which no text changes.
    """
    rows = list_of(field_of(answer, "data"))
    if len(rows) != texts:
        raise _invalid(Reason.NO_VECTOR)
    places = [field_of(row, "index") for row in rows]
    if all(place is None for place in places):
        places = list(range(texts))
    by_place = {
        place: field_of(row, "embedding")
        for place, row in zip(places, rows, strict=True)
        if type(place) is int
    }
    if by_place.keys() != set(range(texts)):
        raise _invalid(Reason.NO_VECTOR)
    return [unit(by_place[place], dimension=dimension) for place in range(texts)]


def unit(numbers: object, *, dimension: int) -> Vector:
    """Return numbers as a vector of unit length.

    Raises:
        AnswerError: They are none, or not so many.
    """
    found = list_of(numbers)
    if not found or not all(type(number) in _NUMBERS for number in found):
        raise _invalid(Reason.NO_VECTOR)
    if len(found) != dimension:
        raise AnswerError(FailureClass.PARAMETER_UNKNOWN, Reason.WRONG_DIMENSION)
    try:
        vector = np.asarray(found, dtype=np.float64)
    except OverflowError:
        raise _invalid(Reason.NOT_FINITE) from None
    if not np.isfinite(vector).all():
        raise _invalid(Reason.NOT_FINITE)
    largest = float(np.abs(vector).max())
    if largest == 0.0:
        raise _invalid(Reason.ZERO_VECTOR)
    # By its largest number first: squares of what is very large or very small are no numbers.
    vector = vector / largest
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def _invalid(reason: Reason) -> AnswerError:
    return AnswerError(FailureClass.INVALID_OUTPUT, reason)
