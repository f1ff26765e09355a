"""What the pages work with, and what a request brings."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.access import Gatekeeper
from api.console.bulk import Bulk
from api.console.figures import Figures
from api.console.pages import Pages
from api.console.session import FormTokens, Visitor
from consumers.operating import letter_desk, replay_desk, switch_desk
from consumers.wiring import Installation
from pipeline.access.signing_in import Logins
from pipeline.failing.resuming import SwitchDesk
from pipeline.letters.desk import LetterDesk
from pipeline.replaying.desk import ReplayDesk


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParts:
    """The parts of the console."""

    installation: Installation
    logins: Logins
    gatekeeper: Gatekeeper | None
    """None where nobody need sign in."""
    tokens: FormTokens
    pages: Pages
    figures: Figures
    bulk: Bulk


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a form sent."""

    fields: tuple[tuple[str, str], ...]

    def one(self, name: str) -> str:
        """Return a field; empty where it was not sent."""
        return next((value for key, value in self.fields if key == name), "")

    def every(self, name: str) -> list[str]:
        """Return every value of a field, each once, in the order they were sent."""
        return list(dict.fromkeys(value for key, value in self.fields if key == name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of somebody who was let in."""

    request: Request
    parts: ConsoleParts
    visitor: Visitor

    @property
    def installation(self) -> Installation:
        """What all processes share."""
        return self.parts.installation

    @property
    def pages(self) -> Pages:
        """What makes the answer."""
        return self.parts.pages

    def letters(self) -> LetterDesk:
        """Return the desk for letters, at which this visitor acts."""
        return letter_desk(self.installation, by=self.visitor.by)

    def replays(self) -> ReplayDesk:
        """Return the desk for replays, at which this visitor acts."""
        return replay_desk(self.installation, by=self.visitor.by)

    def switches(self) -> SwitchDesk:
        """Return the desk for breakers and guards, at which this visitor acts."""
        return switch_desk(self.installation, by=self.visitor.by)


def form_of(request: Request) -> Form:
    """Return the form that the gate has read."""
    return Form(fields=tuple(request.state.form))


def called(request: Request) -> Call:
    """Return a request as pages get it; the gate let nobody in who is unknown."""
    visitor = request.state.visitor
    if not isinstance(visitor, Visitor):
        raise TypeError("the gate lets nobody in whom it does not know")
    parts: ConsoleParts = request.app.state.console
    return Call(request=request, parts=parts, visitor=visitor)


Called = Annotated[Call, Depends(called)]
Sent = Annotated[Form, Depends(form_of)]
