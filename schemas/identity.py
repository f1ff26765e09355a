"""Who a memory belongs to and who may read it."""

import unicodedata
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from schemas.base import Frozen

DEFAULT_PROJECT = "default"
"""The project of calls that name none (the direct routes of a server one runs oneself)."""

NAME_CHARACTERS = 256
"""The longest identity we accept; ids are kept to the letter, never trimmed or folded."""


class Visibility(StrEnum):
    """How far a record reaches inside its project."""

    PRIVATE = "private"
    ORG = "org"


def _kept_exactly(name: str) -> str:
    if not name.strip():
        raise ValueError("must not be blank")
    categories = {unicodedata.category(character) for character in name}
    if "Cc" in categories:
        raise ValueError("must hold no control character")
    if "Cs" in categories:
        raise ValueError("must hold no lone surrogate")
    return name


Name = Annotated[str, Field(max_length=NAME_CHARACTERS), AfterValidator(_kept_exactly)]
"""An identity as its owner writes it: not blank, no control characters, kept to the letter."""


class SessionIdentity(Frozen):
    """Whose conversation it is. Two users with one session id have two sessions."""

    project_id: Name = DEFAULT_PROJECT
    user_id: Name
    session_id: Name
    org_id: Name | None = None
    agent_id: Name | None = None


class Scope(Frozen):
    """To whom a record belongs; part of its slot, so no two scopes ever share a record."""

    project_id: Name
    owner: Name | None
    """The user; none for what belongs to the whole project."""
    visibility: Visibility
    org_id: Name | None = None
    """The organization, where one was named."""


class ReadScope(Frozen):
    """Whom a read is about: each field that is given is one equality in the query, nothing else.

    None is "not given". What is blank never gets here.
    """

    project_id: Name
    org_id: Name | None = None
    user_id: Name | None = None
    visibility: Visibility | None = None
    agent_id: Name | None = None
    session_id: Name | None = None
