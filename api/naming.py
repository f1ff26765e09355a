"""Whom a request is about: what is named in path, query, body and headers, joined by fixed rules.

What is blank counts as not given, wherever it stands. Tenancy that is named twice must agree.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from api.texts import Sent
from pipeline.access.signing_in import Principal
from pipeline.errors import ForbiddenError, InvalidInputError, Problem, UnscopedReadError
from schemas.identity import DEFAULT_PROJECT, Name, ReadScope, Scope, Visibility

_DEPRECATED_VISIBILITY = "shared"


def _given(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


def _visibility(value: Any) -> Any:
    """Return `org` for its deprecated twin."""
    given = _given(value)
    return Visibility.ORG if given == _DEPRECATED_VISIBILITY else given


Given = Annotated[Name | None, BeforeValidator(_given)]
"""An identity, or none where it is blank."""
GivenVisibility = Annotated[Visibility | None, BeforeValidator(_visibility)]


class Named(Sent):
    """What a body or a query string names."""

    org_id: Given = None
    project_id: Given = None
    user_id: Given = Field(default=None, examples=["mara"])
    visibility: GivenVisibility = None
    session_id: Given = Field(default=None, examples=["a trip to Lisbon"])
    agent_id: Given = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and the project that the path names."""

    path_project: str | None
    principal: Principal | None = None
    """Who signed in; none where nobody need."""
    agent_id: str | None = None
    execution_id: str | None = None

    def project(self, named: Named) -> str:
        """Return the project of a request.

        Raises:
            ForbiddenError: It is not the one that who asks is pinned to.
            InvalidInputError: It is named twice, and not the same.
        """
        if self.principal is not None:
            for sent in (self.path_project, named.project_id):
                if sent not in (None, self.principal.project_id):
                    raise ForbiddenError("the project that is named is not the token's")
            return self.principal.project_id
        if self.path_project and named.project_id not in (None, self.path_project):
            raise refused("project_id", "must be the project of the path, or left out")
        return self.path_project or named.project_id or DEFAULT_PROJECT

    def org(self, named: Named) -> str | None:
        """Return the organization of a request: that of who asks, where it is pinned to one.

        Raises:
            ForbiddenError: It is another.
        """
        own = self.principal.org_id if self.principal is not None else None
        if own is not None and named.org_id not in (None, own):
            raise ForbiddenError("the organization that is named is not the token's")
        return own or named.org_id

    def reads(self, named: Named, *, session_id: str | None = None) -> ReadScope:
        """Return what a read may see: each field that is given narrows it, none widens it.

        Raises:
            ForbiddenError: It is another project's or organization's.
            UnscopedReadError: Somebody signed in and names neither a user nor a visibility.
        """
        project, org = self.project(named), self.org(named)
        if self.principal is not None and named.user_id is None and named.visibility is None:
            raise UnscopedReadError("name a user_id or a visibility, or both: a read needs one")
        return ReadScope(
            project_id=project,
            org_id=org,
            user_id=named.user_id,
            visibility=named.visibility,
            session_id=session_id,
        )

    def writes(self, named: Named, default: Visibility) -> Scope:
        """Return where a memory is saved.

        Raises:
            ForbiddenError: It is another project or organization than that of who asks.
            InvalidInputError: Nobody is named as its owner.
        """
        project, org = self.project(named), self.org(named)
        if named.user_id is None:
            raise refused("user_id", "is required")
        return Scope(
            project_id=project,
            org_id=org,
            owner=named.user_id,
            visibility=named.visibility or default,
        )


def refused(field: str, rule: str) -> InvalidInputError:
    """Return the refusal of an input."""
    return InvalidInputError((Problem(field=field, rule=rule),))
