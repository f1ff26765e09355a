"""Whether the server lives and can do its work, and what it counts."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pymongo.errors import PyMongoError

from api.parts import Parts
from consumers.exporting import CONTENT_TYPE


def router(parts: Parts) -> APIRouter:
    """Return the routes; they are no part of what clients call."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/health/live")
    async def live() -> dict[str, Any]:
        """Answer: it lives. Nothing is asked of anybody."""
        return {"live": True}

    @routes.get("/health/ready")
    async def ready() -> JSONResponse:
        """Answer whether a turn could be recorded now."""
        try:
            await parts.ping()
        except PyMongoError as error:
            found = {"state": "unreachable", "detail": type(error).__name__}
            return JSONResponse(
                {"ready": False, "dependencies": {"mongodb": found}},
                status_code=HTTPStatus.SERVICE_UNAVAILABLE,
            )
        return JSONResponse({"ready": True, "dependencies": {"mongodb": {"state": "well"}}})

    @routes.get("/metrics")
    async def metrics() -> Response:
        """Return what this process counts."""
        page = b"" if parts.exporter is None else parts.exporter.page()
        return Response(page, media_type=CONTENT_TYPE)

    return routes
