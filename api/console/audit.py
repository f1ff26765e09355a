"""The audit trail: who did what to what, as it was written before it was done."""

from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from api.console.forms import whole_from
from api.console.parts import Called
from api.console.refusals import FormError
from pipeline.stores.operator_actions import MongoOperatorActions
from schemas.operator_action import Act

LISTED: Final = 100
LAST_PAGE: Final = 1000


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/audit")

    @routes.get("")
    async def trail(call: Called) -> Response:
        """List acts, the newest first."""
        asked = call.request.query_params
        named = {name: asked.get(name, "").strip() for name in ("target", "by", "act")}
        page = whole_from("page", asked.get("page", ""), least=1, most=LAST_PAGE) or 1
        found = await MongoOperatorActions(call.installation.database).matching(
            target=named["target"] or None,
            by=named["by"] or None,
            act=_act(named["act"]),
            projects=call.visitor.projects,
            skip=(page - 1) * LISTED,
            limit=LISTED + 1,
        )
        return call.pages.page(
            call.request,
            "audit.html",
            acts=found[:LISTED],
            is_more=len(found) > LISTED and page < LAST_PAGE,
            page=page,
            asked=named,
            kinds=[act.value for act in Act],
        )

    return routes


def _act(name: str) -> Act | None:
    if not name:
        return None
    try:
        return Act(name)
    except ValueError:
        raise FormError("act: must be one of those in the list") from None
