"""The HTTP application: the same routes under each address that clients use."""

from typing import Final

from fastapi import FastAPI

from api import custom, errors, health, memories, recall, tokens, turns
from api.access import Access
from api.admission import Admission, BodyLimit
from api.described import REFUSALS
from api.parts import Parts

PREFIXES: Final = ("/api/v1/memory", "/api/v1/projects/{project_id}/memory", "/api/v1")
"""Direct, project-scoped, and what a client has that speaks to a memory server itself."""


def application(parts: Parts) -> FastAPI:
    """Return the application. Nothing is connected or started by it."""
    app = FastAPI(
        title="Afterturn",
        summary="The memory of AI agents.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.parts = parts
    errors.register(app)
    for place, prefix in enumerate(PREFIXES):
        for routes in (turns.router(), recall.router(), memories.router(), custom.router()):
            app.include_router(
                routes,
                prefix=prefix,
                include_in_schema=place < len(PREFIXES) - 1,
                responses=REFUSALS,
            )
    app.include_router(tokens.router(parts.logins))
    app.include_router(health.router(parts))
    if parts.gatekeeper is not None:
        app.add_middleware(Access, gatekeeper=parts.gatekeeper, metrics=parts.metrics)
    app.add_middleware(Admission)
    app.add_middleware(BodyLimit)
    app.add_middleware(errors.Settling)
    return app
