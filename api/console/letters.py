"""Letters to be looked at: by how they failed, in a list, one by one."""

from datetime import datetime
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import TypeAdapter

from api.console.forms import as_utc, validated, whole_from
from api.console.letter_filters import ANY, asked_of, query_from
from api.console.letter_views import bytes_of, headers_of, tries_of
from api.console.parts import Call, Called
from api.console.refusals import UnknownPageError
from api.console.troubles import newest_first
from pipeline.errors import LetterError
from pipeline.letters.desk import DiscardReason
from pipeline.letters.grouping import grouped
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.failure import FailureClass, Letter, LetterState
from schemas.topics import TOPICS, Stage

LISTED: Final = 50
LAST_PAGE: Final = 200
"""Further back nobody turns pages: there are filters."""
STATES: Final = (*(state.value for state in LetterState), ANY)
_ORDERS: Final = ("newest", "largest")
_MOMENT: Final[TypeAdapter[dict[str, datetime]]] = TypeAdapter(dict[str, datetime])


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/letters")

    @routes.get("/groups")
    async def groups(call: Called) -> Response:
        """Show letters by how they failed."""
        asked = call.request.query_params
        query = query_from(asked.multi_items(), call.visitor.projects)
        since = asked.get("new_since", "").strip()
        new_since = (
            as_utc(validated(_MOMENT, {"new_since": since}, {})["new_since"]) if since else None
        )
        found = grouped(await call.installation.letters.matching(query), since=new_since)
        order = asked.get("order") if asked.get("order") in _ORDERS else _ORDERS[0]
        return call.pages.page(
            call.request,
            "groups.html",
            groups=newest_first(found) if order == _ORDERS[0] else found,
            letters=sum(group.letters for group in found),
            asked=asked_of(query),
            order=order,
            orders=_ORDERS,
            states=STATES,
            new_since=since,
        )

    @routes.get("")
    async def some(call: Called) -> Response:
        """List letters, those that died first last."""
        asked = call.request.query_params
        query = query_from(asked.multi_items(), call.visitor.projects)
        page = whole_from("page", asked.get("page", ""), least=1, most=LAST_PAGE) or 1
        found = await call.installation.letters.matching(query, page * LISTED + 1)
        return call.pages.page(
            call.request,
            "letters.html",
            letters=found[(page - 1) * LISTED : page * LISTED],
            is_more=len(found) > page * LISTED and page < LAST_PAGE,
            page=page,
            asked=asked_of(query),
            states=STATES,
            stages=[stage.value for stage in Stage],
            classes=[each.value for each in FailureClass],
            topics=[topic.name for topic in TOPICS],
            project=call.visitor.project_id,
        )

    return routes


def one_router() -> APIRouter:
    """Return the route of one letter, which must come after those with a name in its place."""
    routes = APIRouter(prefix="/letters")

    @routes.get("/{letter_id}")
    async def one(call: Called, letter_id: str) -> Response:
        """Show one letter: what was tried, where it comes from, what it is about."""
        letter = await read(call, letter_id)
        desk = call.letters()
        estimate = await desk.estimate(letter)
        shows_words = may_read(call, letter)
        trail = MongoOperatorActions(call.installation.database)
        return call.pages.page(
            call.request,
            "letter.html",
            letter=letter,
            tries=tries_of(letter.attempts),
            estimate=estimate,
            turns=await desk.turns_of(letter) if shows_words else (),
            shows_words=shows_words,
            key=bytes_of(letter.key),
            value=bytes_of(letter.value),
            headers=headers_of(letter.headers),
            acts=await trail.of_target(letter.letter_id),
            reasons=[reason.value for reason in DiscardReason],
        )

    return routes


async def read(call: Call, letter_id: str) -> Letter:
    """Return a letter that may be seen.

    Raises:
        UnknownPageError: There is none.
    """
    try:
        letter = await call.letters().read(letter_id)
    except LetterError:
        letter = None
    if letter is None or not call.visitor.is_of(letter.project_id):
        raise UnknownPageError("no letter has that id: the list shows those there are")
    return letter


def may_read(call: Call, letter: Letter) -> bool:
    """Return whether the words that a letter is about are for whoever asks.

    A letter names no organization, so an account that is pinned to one reads none.
    """
    visitor = call.visitor
    return visitor.principal is None or (
        letter.project_id is not None and visitor.may_read(letter.project_id, None)
    )
