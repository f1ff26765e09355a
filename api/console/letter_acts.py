"""Putting letters right: first what would be done is shown, in numbers, then it is done."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from api.console.bulk import Deed, Run
from api.console.forms import number_from, whole_from
from api.console.letter_filters import asked_of, query_from
from api.console.letters import read
from api.console.pages import to
from api.console.parts import Call, Called, Form, Sent
from api.console.refusals import ChangedError, FormError, UnknownPageError
from pipeline.letters.bulk import Pace
from pipeline.letters.changing import Change
from pipeline.letters.desk import DiscardReason
from schemas.failure import Letter, LetterState

SHOWN: Final = 20
"""Letters that a plan lists by name."""
COUNTED: Final = 200
"""Letters whose tokens are added up; of more, the sum is estimated from these."""
AT_ONCE_SECONDS: Final = 1.5
"""So long a page waits for what it began: what is short is done when it shows."""
REFRESH: Final = 2
_NEEDS: Final = {
    Deed.REDRIVE: LetterState.DEAD,
    Deed.DISCARD: LetterState.DEAD,
    Deed.RESTORE: LetterState.DISCARDED,
}
_DONE: Final = {Deed.REDRIVE: "sent", Deed.DISCARD: "discarded", Deed.RESTORE: "restored"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Which letters something is to be done to."""

    ids: tuple[str, ...]
    """Those that were named; none: those that match."""
    asked: dict[str, str]
    """The filters, where none is named."""
    letters: tuple[Letter, ...]
    """The oldest first; only what it can be done to."""
    left: int = 0
    """How many of the named ones it can't be done to any more."""


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/letters")
    _add_many(routes)
    _add_runs(routes)
    _add_one(routes)
    return routes


def _add_many(routes: APIRouter) -> None:
    @routes.get("/plan")
    async def plan(call: Called) -> Response:
        """Show what would be done to letters; nothing is."""
        asked = call.request.query_params
        deed = _deed(asked.get("act", ""))
        selected = await _selected(call, deed, asked.multi_items())
        desk = call.letters()
        tokens = 0
        if deed is Deed.REDRIVE:
            for letter in selected.letters[:COUNTED]:
                tokens += (await desk.estimate(letter)).tokens
        counted = min(len(selected.letters), COUNTED)
        return call.pages.page(
            call.request,
            "plan.html",
            deed=deed,
            selected=selected,
            shown=selected.letters[:SHOWN],
            tokens=tokens * len(selected.letters) // counted if counted else 0,
            is_estimated=len(selected.letters) > COUNTED,
            reasons=[reason.value for reason in DiscardReason],
        )

    @routes.post("/act")
    async def act(call: Called, sent: Sent) -> Response:
        """Do it to letters: to one at once, to more in a run that has a page of its own."""
        deed = _deed(sent.one("act"))
        selected = await _selected(call, deed, sent.fields)
        seen = whole_from("seen", sent.one("seen"), least=0, most=10**9)
        if seen is not None and len(selected.letters) > seen:
            raise ChangedError(
                f"you saw {seen} letters, and now there are {len(selected.letters)}: look at them"
                " before you go on"
            )
        if not selected.letters:
            raise ChangedError(
                f"none of these letters is {_NEEDS[deed]} any more: somebody else may have dealt"
                " with them"
            )
        run = _begin(call, deed, selected.letters, sent)
        await call.parts.bulk.wait(run.run_id, AT_ONCE_SECONDS)
        call.parts.figures.something_was_done()
        return RedirectResponse(to(f"/letters/runs/{run.run_id}"), HTTPStatus.SEE_OTHER)


def _add_runs(routes: APIRouter) -> None:
    @routes.get("/runs/{run_id}")
    async def run(call: Called, run_id: str) -> Response:
        """Show how far something is that is done to many letters."""
        found = _run(call, run_id)
        is_still = call.request.query_params.get("refresh") == "off"
        return call.pages.page(
            call.request,
            "run.html",
            run=found,
            refresh=REFRESH if found.ended_at is None and not is_still else None,
        )

    @routes.post("/runs/{run_id}/stop")
    async def stop(call: Called, run_id: str) -> Response:
        """Let it begin no further letter."""
        found = _run(call, run_id)
        await call.parts.bulk.stop(found.run_id, call.visitor.by)
        return RedirectResponse(to(f"/letters/runs/{found.run_id}"), HTTPStatus.SEE_OTHER)


def _add_one(routes: APIRouter) -> None:
    @routes.post("/{letter_id}/act")
    async def act_on_one(call: Called, letter_id: str, sent: Sent) -> Response:
        """Do it to one letter, if it is still as it was seen."""
        deed = _deed(sent.one("act"))
        letter = await read(call, letter_id)
        if sent.one("seen") != mark_of(letter):
            raise ChangedError(
                f"since you opened it somebody has dealt with it: it is {letter.state} now, and"
                f" died {letter.deaths} times"
            )
        desk = call.letters()
        if deed is Deed.REDRIVE:
            await desk.redrive(letter, change_from(sent))
        elif deed is Deed.DISCARD:
            await desk.discard(letter, _reason(sent))
        else:
            await desk.restore(letter)
        call.parts.figures.something_was_done()
        where = to(f"/letters/{letter.letter_id}", done=_DONE[deed])
        return RedirectResponse(where, HTTPStatus.SEE_OTHER)


def mark_of(letter: Letter) -> str:
    """Return what tells a letter from itself after somebody dealt with it."""
    return f"{letter.state}:{letter.deaths}"


def change_from(sent: Form) -> Change:
    """Return what is to be otherwise when it is tried again.

    Raises:
        FormError: A field holds what can't be meant.
    """
    named = sent.one("leave_out").replace(",", " ").split()
    seqs = [whole_from("leave out", each, least=1, most=2**31) for each in named]
    return Change(
        max_tokens=whole_from(
            "tokens of the answer", sent.one("max_tokens"), least=256, most=10**6
        ),
        leave_out=tuple(seq for seq in seqs if seq is not None),
        split=sent.one("split") == "on",
    )


def _begin(call: Call, deed: Deed, letters: Sequence[Letter], sent: Form) -> Run:
    desk, bulk, who = call.letters(), call.parts.bulk, call.visitor
    if deed is Deed.REDRIVE:
        pace = Pace(
            per_second=number_from(
                "letters a second", sent.one("rate"), least=0.1, most=1000, default=10
            ),
            canary=int(number_from("first", sent.one("canary"), least=0, most=1000, default=1)),
            stop_above=number_from("percent", sent.one("stop_above"), least=0, most=100, default=20)
            / 100,
        )
        if len(letters) == 1:
            pace = replace(pace, canary=0)
        change = change_from(sent)
        return bulk.redrive(desk, letters, change, pace, by=who.by, project_id=who.project_id)
    if deed is Deed.DISCARD:
        reason = _reason(sent)
        return bulk.discard(desk, letters, reason, by=who.by, project_id=who.project_id)
    return bulk.restore(desk, letters, by=who.by, project_id=who.project_id)


async def _selected(call: Call, deed: Deed, given: Sequence[tuple[str, str]]) -> Selected:
    needed = _NEEDS[deed]
    ids = tuple(dict.fromkeys(value for name, value in given if name == "id"))
    if ids:
        named = [await read(call, each) for each in ids]
        fit = tuple(letter for letter in named if letter.state is needed)
        return Selected(ids=ids, asked={}, letters=fit, left=len(named) - len(fit))
    query = replace(query_from(given, call.visitor.projects), state=needed)
    found = await call.installation.letters.matching(query)
    return Selected(ids=(), asked=asked_of(query), letters=tuple(reversed(found)))


def _deed(name: str) -> Deed:
    try:
        return Deed(name)
    except ValueError:
        raise FormError(f"act: must be one of {', '.join(Deed)}") from None


def _reason(sent: Form) -> DiscardReason:
    try:
        return DiscardReason(sent.one("discard_reason"))
    except ValueError:
        raise FormError("reason: say why nobody will send it back") from None


def _run(call: Call, run_id: str) -> Run:
    found = call.parts.bulk.get(run_id)
    if found is None or found.project_id != call.visitor.project_id:
        raise UnknownPageError(
            "this process knows of no such run: it has ended long ago, or with an earlier process."
            " What it did not reach is as it was, and the audit trail has what it did"
        )
    return found
