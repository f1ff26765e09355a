"""The HTTP application: the same routes under each address that clients use."""

from typing import Final

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer

from api import custom, errors, health, memories, recall, tokens, turns
from api.access import Access
from api.admission import Admission, BodyLimit
from api.described import REFUSALS
from api.parts import Parts

PREFIXES: Final = ("/api/v1/memory", "/api/v1/projects/{project_id}/memory", "/api/v1")
"""Direct, project-scoped, and what a client has that speaks to a memory server itself."""

_TOKEN: Final = HTTPBearer(
    auto_error=False, description="A token of one hour, from `POST /api/v1/oauth/token`."
)


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
    # Told to readers of the description; who is let in is decided before any route is.
    signed = [] if parts.gatekeeper is None else [Security(_TOKEN)]
    for place, prefix in enumerate(PREFIXES):
        for routes in (turns.router(), recall.router(), memories.router(), custom.router()):
            app.include_router(
                routes,
                prefix=prefix,
                include_in_schema=place < len(PREFIXES) - 1,
                responses=REFUSALS,
                dependencies=signed,
            )
    app.include_router(tokens.router(parts.logins))
    app.include_router(health.router(parts))
    if parts.gatekeeper is not None:
        app.add_middleware(Access, gatekeeper=parts.gatekeeper, metrics=parts.metrics)
    app.add_middleware(Admission)
    app.add_middleware(BodyLimit)
    app.add_middleware(errors.Settling)
    return app
