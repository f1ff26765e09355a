"""Who is at the console: the session's cookie, the token of its forms, and whence a form may come.

Decisions without any state. The session is an access token of the API in a cookie that no script
reads and no other site sends; see docs/adr/0019.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from api.access import CONSOLE
from pipeline.access.rights import Permission, may
from pipeline.access.signing_in import Principal
from pipeline.access.tokens import LIFE

LOGIN: Final = f"{CONSOLE}/login"
FORMS_PURPOSE: Final = "forms of the console"
"""What the key of `FormTokens` is derived for."""
NOBODY: Final = "console: nobody signed in"
"""Who acts while nobody need sign in, for the audit trail."""
_COOKIE: Final = "afterturn-console"
_HEADER_BYTES: Final = 16_384
_SAFE: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Who asks for a page."""

    principal: Principal | None
    """None while nobody need sign in: whoever reaches this machine may do everything."""

    @property
    def by(self) -> str:
        """Who it is for the audit trail."""
        return NOBODY if self.principal is None else self.principal.account_id

    @property
    def project_id(self) -> str | None:
        """The one project whose letters, jobs and memories it may see; none: all."""
        return None if self.principal is None else self.principal.project_id

    @property
    def projects(self) -> tuple[str | None, ...] | None:
        """Whose letters and acts it sees: of its project and of none; none: everybody's."""
        return None if self.principal is None else (self.principal.project_id, None)

    @property
    def session_id(self) -> str:
        """What its forms are made for."""
        return "" if self.principal is None else self.principal.token_id

    def may(self, permission: Permission) -> bool:
        """Return whether it may do something."""
        return self.principal is None or may(self.principal.role, permission)

    def may_read(self, project_id: str, org_id: str | None) -> bool:
        """Return whether words of a project and an organization are its to read."""
        who = self.principal
        if who is None:
            return True
        is_own = who.project_id == project_id and who.org_id in (None, org_id)
        return is_own and self.may(Permission.WORDS)

    def is_of(self, project_id: str | None) -> bool:
        """Return whether something of a project is its to see; of no project: everybody's."""
        return self.projects is None or project_id in self.projects


class FormTokens:
    """Makes and checks what a form must carry to count: nobody else's page can know it.

    Args:
        key: Derived from the installation's for `FORMS_PURPOSE`.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, session_id: str) -> str:
        """Return the token of a session's forms."""
        return hmac.new(self._key, session_id.encode(), hashlib.sha256).hexdigest()

    def is_of(self, session_id: str, sent: str) -> bool:
        """Return whether that is what was sent."""
        return hmac.compare_digest(self.of(session_id).encode(), sent.encode())


def is_safe(method: str) -> bool:
    """Return whether a request changes nothing, whoever sends it."""
    return method in _SAFE


def comes_from_here(headers: Mapping[str, str], *, is_https: bool) -> bool:
    """Return whether a form was sent by a page of this very server, as browsers say.

    A request that does not say whence it comes is not believed.
    """
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = urlsplit(headers.get("origin", ""))
    schemes = ("https",) if is_https else ("https", "http")
    return origin.scheme in schemes and bool(origin.netloc) and origin.netloc == headers.get("host")


def session_of(cookies: str, *, is_https: bool) -> str | None:
    """Return the access token that a request's cookies carry."""
    if not cookies or len(cookies) > _HEADER_BYTES:
        return None
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(cookies)
    except CookieError:
        return None
    found = jar.get(_name(is_https=is_https))
    return None if found is None else found.value or None


def cookie_of(token: str, *, is_https: bool) -> str:
    """Return the header that opens a session, for as long as the token is good."""
    return _cookie(token, int(LIFE.total_seconds()), is_https=is_https)


def ended_cookie(*, is_https: bool) -> str:
    """Return the header that ends one."""
    return _cookie("", 0, is_https=is_https)


def local_path(path: str | None) -> str:
    """Return where to go on after a login: a page of the console, and nothing else."""
    start = f"{CONSOLE}/"
    is_ours = path is not None and (path == CONSOLE or path.startswith((start, f"{CONSOLE}?")))
    if path is None or not is_ours or not path.isascii() or not path.isprintable():
        return start
    return start if "\\" in path or path.startswith(LOGIN) else path


def _name(*, is_https: bool) -> str:
    # Browsers take a name that begins so from https only, for this very host and no other.
    return f"__Host-{_COOKIE}" if is_https else _COOKIE


def _cookie(value: str, seconds: int, *, is_https: bool) -> str:
    where = "Path=/; Secure" if is_https else f"Path={CONSOLE}"
    return (
        f"{_name(is_https=is_https)}={value}; Max-Age={seconds}; {where}; HttpOnly; SameSite=Strict"
    )
