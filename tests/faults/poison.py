"""A session that kills whatever process meets it, as a native crash or the kernel does: at once."""

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Any, Literal

from pipeline import cutting
from pipeline.cutting import Cutter
from pipeline.extracting import step as extracting
from pipeline.models.metering import MeteredModel
from pipeline.ports.model import ModelRequest
from schemas.extraction import Reply
from schemas.message import IncomingMessage

MURDERED = 139
"""The exit code of a process that was killed so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """What kills, and where it is met."""

    session: str
    at: Literal["wake_up", "cut", "ready", "model"]
    """Decoding a wake-up, cutting, decoding `snapshot.ready`, asking the model."""
    company: int = 0
    """How many neighbours the model is being asked for when it kills there, if so many come."""


def spread(poison: Poison) -> None:
    """Make this process mortal."""
    if poison.at == "cut":
        _kill_in_cut(poison)
    elif poison.at == "model":
        _kill_in_model(poison)
    else:
        module: Any = cutting if poison.at == "wake_up" else extracting
        decode = module.decode

        def decode_or_die(message: IncomingMessage) -> object:
            if poison.session.encode() in (message.value or b""):
                _die()
            return decode(message)

        module.decode = decode_or_die


def _kill_in_cut(poison: Poison) -> None:
    cut = Cutter.cut

    async def cut_or_die(self: Cutter, session: str) -> None:
        if session == poison.session:
            _die()
        await cut(self, session)

    Cutter.cut = cut_or_die


def _kill_in_model(poison: Poison) -> None:
    answer = MeteredModel.answer
    asked = 0
    has_company = asyncio.Event()

    async def answer_or_die(self: MeteredModel, request: ModelRequest) -> Reply:
        nonlocal asked
        if request.turns[0].session == poison.session:
            try:
                async with asyncio.timeout(1.2):
                    await has_company.wait()
            except TimeoutError:
                pass
            _die(beside=asked)
        asked += 1
        if asked >= poison.company:
            has_company.set()
        try:
            return await answer(self, request)
        finally:
            asked -= 1
            has_company.clear()

    MeteredModel.answer = answer_or_die


def _die(*, beside: int = 0) -> None:
    sys.stderr.write(f'{{"event": "murdered", "beside": {beside}}}\n')
    sys.stderr.flush()
    os._exit(MURDERED)
