"""The HTTP client that every vendor's client is given: no answer is larger than it can be read.

A vendor's client reads a body to its end, whatever that takes: one that does not end, or a small
one that unpacks into gigabytes, would take the process with it.
"""

import json
import zlib
from datetime import timedelta
from typing import Any, Final

import httpx2

from pipeline.errors import AnswerError
from pipeline.failing.reasons import Reason
from schemas.failure import FailureClass

ANSWER_BYTES: Final = 8 * 1024 * 1024
"""How large an answer may be, unpacked: several times what may be stored of it."""
_ERROR_BYTES: Final = 64 * 1024
"""How much of a failure's body is looked at: an error object is far smaller."""
_CONNECT_TIMEOUT: Final = timedelta(seconds=5)
_OF_THE_WIRE: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_MULTIPLE_CHOICES: Final = 300


class BoundedClient(httpx2.AsyncClient):
    """Reads every body whole, up to a limit that counts unpacked bytes.

    A redirect is not followed: a conversation goes where an operator said, and nowhere else.
    """

    def __init__(self, *, timeout: timedelta) -> None:
        """Open nothing yet.

        Args:
            timeout: How long the connection may be silent; 5 s at most until it stands.
        """
        super().__init__(
            timeout=httpx2.Timeout(
                timeout.total_seconds(), connect=min(timeout, _CONNECT_TIMEOUT).total_seconds()
            ),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
        )

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """Return a response with its body read and unpacked, also where a stream is asked for.

        Raises:
            AnswerError: An answer is too large, or packed otherwise than was asked for.
            httpx2.TransportError: There is none.
        """
        # Not every vendor's client leaves the timeouts as they were set.
        request.extensions = {**request.extensions, "timeout": self.timeout.as_dict()}
        request.headers["accept-encoding"] = "gzip"
        response = await super().send(request, stream=True, **options)
        try:
            body = await _body(response)
        finally:
            await response.aclose()
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in _OF_THE_WIRE
        ]
        whole = httpx2.Response(
            response.status_code,
            headers=headers,
            content=body,
            request=request,
            extensions=response.extensions,
        )
        whole.elapsed = response.elapsed
        return whole


async def _body(response: httpx2.Response) -> bytes:
    """Return the body; of a failure nothing that is no JSON, for its status says enough."""
    if response.status_code < _MULTIPLE_CHOICES:
        return await _unpacked(response, ANSWER_BYTES)
    try:
        body = await _unpacked(response, _ERROR_BYTES)
    except AnswerError:
        return b""
    return body if _is_json(body) else b""


def _is_json(body: bytes) -> bool:
    """Return whether a vendor's client can read it: not every one survives what it can't."""
    try:
        json.loads(body.decode())
    except (ValueError, RecursionError):
        return False
    return True


async def _unpacked(response: httpx2.Response, limit: int) -> bytes:
    """Return the unpacked body; no more than the limit and one packet are held at a time."""
    packing = response.headers.get("content-encoding", "identity").lower()
    unpack = zlib.decompressobj(_GZIP_OR_ZLIB) if packing in {"gzip", "deflate"} else None
    if unpack is None and packing != "identity":
        raise AnswerError(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION)
    body = bytearray()
    async for piece in response.aiter_raw():
        try:
            body += piece if unpack is None else unpack.decompress(piece, limit + 1 - len(body))
        except zlib.error:
            raise AnswerError(FailureClass.UNAVAILABLE, Reason.NOT_A_COMPLETION) from None
        if len(body) > limit:
            raise AnswerError(FailureClass.INVALID_OUTPUT, Reason.ANSWER_TOO_LARGE)
    return bytes(body)
