"""Who is asked: while nobody need sign in, only requests that name this machine are answered.

A page in a browser on this machine may have its own name point at 127.0.0.1, and could then read
what is served here as if it were its own. Its requests still carry that name.
"""

from ipaddress import ip_address
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import answer

_LOCAL: Final = "localhost"


class OwnHost:
    """Answers requests to an address or to localhost, and refuses those to any other name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse before anything is read."""
        if scope["type"] == "http" and not names_this_machine(Headers(scope=scope).get("host")):
            refusal = answer(
                421,
                "HOST_REFUSED",
                "while nobody need sign in, requests are answered to an IP address or localhost:"
                " call one of these, or set AFTERTURN_HTTP__AUTH=on",
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)


def names_this_machine(host: str | None) -> bool:
    """Return whether a Host header is an address or localhost, with a port or without, or blank."""
    if not host:
        return True
    is_ipv6 = host.startswith("[")
    name = host[1:].partition("]")[0] if is_ipv6 else host.partition(":")[0]
    if name.lower() == _LOCAL:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
