"""The console's pure parts: what is shown how, what is let through, what is told first."""

import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.console.evidence import segments_of
from api.console.inert import inert
from api.console.letter_filters import asked_of, query_from
from api.console.letter_views import BYTES, bytes_of
from api.console.pages import ago, number, prose, span, to
from api.console.pictures import HEIGHT, HOURS, chart_of
from api.console.session import (
    CONSOLE,
    FormTokens,
    comes_from_here,
    cookie_of,
    local_path,
    session_of,
)
from api.console.troubles import troubles_of
from pipeline.letters.grouping import Group
from pipeline.ports.letters import LetterQuery
from pipeline.stores.figures import Death
from schemas.failure import FailureClass, LetterState
from schemas.topics import Stage

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOMENTS = st.integers(0, 10**12).map(
    lambda ms: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
)
NAMES = st.text(min_size=1).map(str.strip).filter(bool)


@given(st.text())
def test_nothing_that_is_shown_obeys_anybody(text: str) -> None:
    shown = inert(text)

    bad = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    kept = set("\n\t\u200c\u200d")
    assert not [each for each in shown if unicodedata.category(each) in bad and each not in kept]
    assert inert(shown) == shown
    assert all(each in shown for each in text if each.isalnum())


@given(st.text(), st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=3))
def test_an_address_is_always_one_of_the_console(path: str, query: dict[str, str]) -> None:
    address = to("/" + path, query)

    assert address.startswith(f"{CONSOLE}/")
    assert address.isascii()
    assert not set(address) & set("\"'<> \\\n")


@given(st.text(max_size=30) | st.text(alphabet="/\\:?#.console@login", max_size=30))
def test_after_a_login_nobody_is_led_elsewhere(path: str) -> None:
    for asked in (path, f"/{path}", f"{CONSOLE}{path}", f"//{path}"):
        where = local_path(asked)
        assert where == CONSOLE or where.startswith((f"{CONSOLE}/", f"{CONSOLE}?"))
        assert not where.startswith("//")
        assert where.isprintable()
        assert "\\" not in where


def test_where_one_was_going_is_where_one_goes() -> None:
    assert local_path(f"{CONSOLE}/letters?state=any") == f"{CONSOLE}/letters?state=any"
    for elsewhere in (
        None,
        "",
        "https://evil.example",
        "/api/v1",
        f"{CONSOLE}evil",
        "javascript:x",
    ):
        assert local_path(elsewhere) == f"{CONSOLE}/"


@pytest.mark.parametrize("is_https", [False, True])
def test_a_session_is_in_one_cookie_that_only_its_own_kind_of_connection_reads(
    is_https: bool,
) -> None:
    cookie = cookie_of("a.b.c", is_https=is_https)
    sent = cookie.partition(";")[0]

    assert session_of(f"other=1; {sent}", is_https=is_https) == "a.b.c"
    assert session_of(sent, is_https=not is_https) is None
    assert session_of(sent + "x" * 20_000, is_https=is_https) is None
    assert session_of("afterturn-console=", is_https=is_https) is None
    assert ("Secure" in cookie, cookie.startswith("__Host-")) == (is_https, is_https)
    assert ("Path=/;" in cookie) == is_https


def test_a_form_comes_from_here_only_if_its_browser_says_so() -> None:
    here = {"origin": "https://memory.example:8443", "host": "memory.example:8443"}

    assert comes_from_here(here, is_https=True)
    assert comes_from_here(here, is_https=False)
    assert not comes_from_here(here | {"origin": "http://memory.example:8443"}, is_https=True)
    assert not comes_from_here(here | {"origin": "https://memory.example"}, is_https=True)
    assert not comes_from_here({"origin": "https://", "host": ""}, is_https=True)
    assert not comes_from_here({"origin": "null", "host": "null"}, is_https=False)


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_forms_token_is_that_of_its_session_alone(one: str, other: str) -> None:
    tokens = FormTokens(b"k" * 32)

    assert tokens.is_of(one, tokens.of(one))
    assert tokens.is_of(one, tokens.of(other)) == (one == other)
    assert FormTokens(b"l" * 32).of(one) != tokens.of(one)


@given(
    st.builds(
        LetterQuery,
        state=st.none() | st.sampled_from(LetterState),
        stage=st.none() | st.sampled_from(Stage),
        failure_class=st.none() | st.sampled_from(FailureClass),
        reason=st.none() | NAMES,
        fingerprint=st.none() | NAMES,
        disposition=st.none() | st.sampled_from(("content", "exhausted")),
        project_id=st.none() | NAMES,
        session=st.none() | NAMES,
        model=st.none() | NAMES,
        topic=st.none() | NAMES,
        since=st.none() | MOMENTS,
        until=st.none() | MOMENTS,
        deaths=st.none() | st.integers(1, 1000),
    )
)
def test_an_address_asks_for_what_it_was_made_from(query: LetterQuery) -> None:
    assert query_from(asked_of(query).items(), None) == query


@given(st.text(alphabet="ab c.,\n“İß", max_size=60), st.lists(st.text(alphabet="ab c", max_size=6)))
def test_pieces_of_a_turn_are_the_turn_and_nothing_unquoted_is_marked(
    content: str, quotes: list[str]
) -> None:
    pieces = segments_of(content, quotes)

    assert "".join(piece.text for piece in pieces) == content
    assert all(piece.text for piece in pieces)
    if not any(quote.strip() for quote in quotes):
        assert not [piece for piece in pieces if piece.is_quoted]


def test_words_are_marked_however_they_were_typed() -> None:
    content = "Well — I’m\n allergic  to PENICILLIN, you know."

    marked = [piece.text for piece in segments_of(content, ["I'm allergic to penicillin"])]

    assert marked == ["Well — ", "I’m\n allergic  to PENICILLIN", ", you know."]


def test_bytes_are_text_where_they_can_be_and_never_too_many() -> None:
    text, binary = bytes_of("ключ".encode()), bytes_of(b"\x00\xff" * 20)
    long = bytes_of("é".encode() * BYTES)

    assert bytes_of(None) is None
    assert text is not None
    assert (text.text, text.is_text, text.is_cut) == ("ключ", True, False)
    assert binary is not None
    assert (binary.is_text, binary.text.splitlines()[0]) == (False, ("00 ff " * 8).strip())
    assert long is not None
    assert (long.is_cut, long.is_text, long.size) == (True, True, 2 * BYTES)
    assert len(long.text) <= BYTES


@given(
    st.lists(
        st.builds(
            Death,
            at=st.integers(-3600, HOURS * 3700).map(lambda ago: NOW - timedelta(seconds=ago)),
            failure_class=st.just(FailureClass.REFUSED),
            state=st.sampled_from(LetterState),
        ),
        max_size=40,
    )
)
def test_a_picture_has_every_letter_of_its_day_and_stays_in_its_frame(deaths: list[Death]) -> None:
    chart = chart_of(deaths, NOW)

    assert chart.letters == sum(NOW - death.at < timedelta(hours=HOURS) for death in deaths)
    for bar in chart.bars:
        assert 0 <= bar.x < chart.width
        assert bar.y >= 0
        assert bar.height > 0
        assert bar.y + bar.height <= HEIGHT


def test_numbers_and_times_read_as_people_read_them() -> None:
    assert number(1234567) == "1\u202f234\u202f567"
    assert number(None) == "–"
    assert [span(each) for each in (0.2, 59, 61, 7199, 100_000, 200_000)] == [
        "0 s",
        "59 s",
        "1 min",
        "1 h",
        "27 h",
        "2 days",
    ]
    assert ago(NOW - timedelta(minutes=3), NOW) == "3 min ago"
    assert ago(NOW + timedelta(seconds=9), NOW) == "in 9 s"
    assert str(prose("Run `a <b>` & see.")) == "Run <code>a &lt;b&gt;</code> &amp; see."


def group(fingerprint: str, hours_ago: float, letters: int = 1) -> Group:
    return Group(
        fingerprint=fingerprint,
        failure_class=FailureClass.REFUSED,
        reason="refusal",
        action="Discard it.",
        letters=letters,
        exhausted=0,
        first_at=NOW - timedelta(hours=hours_ago),
        last_at=NOW,
        new=0,
    )


def test_what_stopped_is_told_before_what_failed_and_the_newest_kind_before_the_largest() -> None:
    held: dict[str, Any] = {
        "kind": "breaker",
        "name": "openai:m:crd_1",
        "state": "open",
        "reason": "http_401",
        "action": "Replace the key.",
        "next_try_ms": 0,
    }
    ledger: dict[str, Any] = {
        "held_back": [held],
        "extractions": {"reasons": {"http_503": {"extractions": 2, "action": "Wait."}}},
        "embeddings": {"reasons": {}},
        "open": {"oldest_seconds": 7200},
    }
    broker: dict[str, Any] = {"lag": None, "topics": ["retry.5s keeps 1 d: run `topics apply`"]}

    found = troubles_of(
        ledger,
        broker,
        [group("old", 100, letters=500), group("new", 1)],
        now=NOW,
        open_at_most=timedelta(hours=1),
    )

    assert [one.level for one in found] == ["stopped"] * 4 + ["failed"] * 2 + ["waiting"]
    assert found[0].resumes == "openai:m:crd_1"
    assert [one.is_new for one in found if one.level == "failed"] == [True, False]
    assert found[-1].title == "2 extractions to be tried again: http_503"
    calm: dict[str, Any] = {
        **ledger,
        "held_back": [],
        "extractions": {"reasons": {}},
        "open": {"oldest_seconds": 9},
    }
    assert (
        troubles_of(calm, {"lag": {}, "topics": []}, [], now=NOW, open_at_most=timedelta(hours=1))
        == []
    )
