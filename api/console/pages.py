"""Pages: templates with what each of them shows, and how numbers and times read on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request

from api.console.inert import inert, shown
from api.console.session import CONSOLE, FormTokens, Visitor
from pipeline.access.rights import Permission

_TEMPLATES: Final = Path(__file__).parent / "templates"
_NAVIGATION: Final = (
    ("Overview", "/", Permission.OPERATE),
    ("Letters", "/letters/groups", Permission.OPERATE),
    ("Replays", "/replays", Permission.OPERATE),
    ("Sessions", "/sessions", Permission.WORDS),
    ("Users", "/users", Permission.WORDS),
    ("Audit", "/audit", Permission.OPERATE),
)
"""What the pages are called, where they are and what they need."""
_SPANS: Final = (("day", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_WHOLE_DAYS: Final = 2

_DONE: Final[Mapping[str, str]] = {
    "resumed": "It is resumed: what it held back goes on.",
    "sent": "It is sent back; its state is told below.",
    "discarded": "It is discarded. Restore brings it back.",
    "restored": "It is a dead letter again.",
    "started": "The replay is started; `run jobs` or `up` runs it.",
    "paused": "It is paused: it begins nothing more, and what is under way ends.",
    "continued": "It goes on where it was.",
    "cancelled": "It is cancelled. What it has done stays; what is under way ends.",
}
"""What a page says first after an act that led to it, by the code in its address."""

Given = str | int | None
"""What a link's query may hold."""


class Pages:
    """Makes pages.

    Args:
        tokens: Of the forms on them.
    """

    def __init__(self, tokens: FormTokens) -> None:
        self._tokens = tokens
        self._templates = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=shown,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters = cast("dict[str, Any]", self._templates.filters)
        filters |= {"number": number, "moment": moment, "iso": iso, "span": span, "ago": ago}
        filters["prose"] = prose
        cast("dict[str, Any]", self._templates.globals)["to"] = to

    def page(
        self,
        request: Request,
        template: str,
        *,
        status: int = HTTPStatus.OK,
        **shows: Any,
    ) -> HTMLResponse:
        """Return a page for whoever asks; `now` is the time its ages are told from."""
        visitor: Visitor | None = request.state.visitor
        told: dict[str, Any] = {
            "visitor": visitor,
            "navigation": [] if visitor is None else navigation(visitor, request.scope["path"]),
            "done": _DONE.get(request.query_params.get("done", "")),
            "now": datetime.now(UTC),
            "form_token": self._tokens.of("" if visitor is None else visitor.session_id),
            "may_see_words": visitor is not None and visitor.may(Permission.WORDS),
            "refresh": None,
        }
        text = self._templates.get_template(template).render({**told, **shows})
        return HTMLResponse(text, status_code=status)

    def refusal(self, request: Request, status: int, title: str, text: str) -> HTMLResponse:
        """Return a page that says why something was not done, and what to do."""
        return self.page(request, "refusal.html", status=status, title=title, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One of the links that every page has."""

    name: str
    href: str
    is_here: bool


def navigation(visitor: Visitor, path: str) -> list[Way]:
    """Return the links to the pages that a visitor may see."""
    return [
        Way(name=name, href=to(where), is_here=_is_within(path, to(where)))
        for name, where, needed in _NAVIGATION
        if visitor.may(needed)
    ]


def _is_within(path: str, where: str) -> bool:
    family = where.removesuffix("/groups")
    return path == where or (where != to("/") and f"{path}/".startswith(f"{family}/"))


def to(path: str, query: Mapping[str, Given | Sequence[str]] | None = None, **more: Given) -> str:
    """Return the address of a page of the console; what is none is left out.

    Nothing that somebody else wrote can be another address: it is quoted, and comes after our path.
    """
    given = {**(query or {}), **more}
    kept = [(name, value) for name, value in given.items() if value not in (None, "", (), [])]
    asked = urlencode(kept, doseq=True)
    return CONSOLE + quote(path) + (f"?{asked}" if asked else "")


def prose(text: str) -> Markup:
    """Return a sentence of ours with what stands in backticks as code."""
    parts = enumerate(inert(text).split("`"))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in parts
    )


def number(value: int | None) -> str:
    """Return a number with its thousands apart; a dash where it is not known."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def moment(value: datetime) -> str:
    """Return a time as operators read it, in UTC."""
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def iso(value: datetime) -> str:
    """Return a time as machines read it."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(value: timedelta | float) -> str:
    """Return a span in its largest unit, rounded down: `3 min`, `2 days`."""
    seconds = int(value.total_seconds() if isinstance(value, timedelta) else value)
    for name, size in _SPANS:
        if seconds >= size * (_WHOLE_DAYS if name == "day" else 1):
            count = seconds // size
            return f"{count} days" if name == "day" else f"{count} {name}"
    return "0 s"


def ago(value: datetime, now: datetime) -> str:
    """Return how long ago a time was, or how soon it will be."""
    seconds = (now - value).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {span(-seconds)}" if seconds < 0 else f"{span(seconds)} ago"
