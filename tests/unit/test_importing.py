"""Reading a transcript: what is a line, what is a turn, and what makes it the same turn again."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import InvalidInputError
from producers.importing import LineProblem
from producers.transcripts import LINE_BYTES, SAMPLE_BYTES, Line, is_text, lines_of, said_in

SECRET = "hunter2"


def lines(path: Path, data: bytes) -> list[tuple[int, bytes | None]]:
    path.write_bytes(data)
    return [(line.number, line.data) for line in lines_of(path)]


def line(**fields: Any) -> Line:
    document = {"session_id": "s", "user_id": "u", "role": "user", "content": "hi"} | fields
    return Line(number=1, data=json.dumps(document).encode(), end=0)


def test_blank_lines_a_bom_and_line_ends_of_windows_are_no_content(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf{}\r\n\r\n  \n{1}\n\n{2}"

    assert lines(tmp_path / "t", data) == [(1, b"{}"), (4, b"{1}"), (6, b"{2}")]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert lines(tmp_path / "t", b"") == []
    assert lines(tmp_path / "t", b"\xef\xbb\xbf\n") == []


def test_a_line_that_is_too_long_is_passed_over_and_the_next_one_read(tmp_path: Path) -> None:
    huge = b"x" * (3 * LINE_BYTES)
    longest = b"y" * (LINE_BYTES - 1)

    assert lines(tmp_path / "t", b"{1}\n" + huge + b"\n" + longest + b"\n{4}") == [
        (1, b"{1}"),
        (2, None),
        (3, longest),
        (4, b"{4}"),
    ]
    assert lines(tmp_path / "t", huge) == [(1, None)]


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (None, f"must be at most {LINE_BYTES} bytes"),
        (b"\xff\xfe", "must be UTF-8"),
        (b"hunter2", "must be JSON"),
        (b'{"a": hunter2}', "must be JSON"),
        (b'{"content": ' + b"9" * 5000 + b"}", "must be JSON"),
        (b"[" * 100_000, "must be JSON"),
        (b'["hunter2"]', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"role": "user", "role": "system"}', "must have no key twice"),
        (b'{"metadata": {"hunter2": 1, "hunter2": 2}}', "must have no key twice"),
    ],
)
def test_a_line_that_is_no_object_is_refused_without_a_word_of_it(
    data: bytes | None, rule: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        said_in(Line(number=1, data=data, end=0), project_id="p")

    assert [(each.field, each.rule) for each in caught.value.problems] == [("line", rule)]
    assert caught.value.__context__ is None


def test_a_line_names_every_field_it_lacks() -> None:
    def lacks(document: dict[str, Any]) -> list[tuple[str, str]]:
        with pytest.raises(InvalidInputError) as caught:
            said_in(Line(number=1, data=json.dumps(document).encode(), end=0), project_id="p")
        return [(each.field, each.rule) for each in caught.value.problems]

    whose = {"session_id": "s", "user_id": "u"}

    assert lacks(whose | {"role": "user"}) == [("content", "is missing")]
    assert lacks({}) == [
        (name, "is missing") for name in ("user_id", "session_id", "role", "content")
    ]


def test_an_assistant_that_calls_a_tool_may_say_nothing() -> None:
    data = b'{"session_id": "s", "user_id": "u", "role": "assistant", "tool_calls": [{}]}'

    said = said_in(Line(number=1, data=data, end=0), project_id="p")

    assert "content" not in said.fields


def test_a_field_that_no_line_may_have_is_not_repeated_and_those_it_may_have_are() -> None:
    with pytest.raises(InvalidInputError) as caught:
        said_in(line(hunter2="x"), project_id="p")

    (problem,) = caught.value.problems
    assert SECRET not in problem.rule
    assert all(name in problem.rule for name in ("user_id", "content", "tool_calls", "created_at"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", True),
        (b"no json", True),
        ("{}\n".encode("utf-16"), False),
        ("{}\n".encode("utf-16-le"), False),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", False),
        (b"\x1f\x8b\x08\xff" * 100, False),
        ('"é"\n'.encode("latin-1") * 3, False),
        ('{"a": "é"}\n'.encode("latin-1") + b'{"a": 1}\n', True),
        (b"a\0b\n{}\n", True),
        (b"x" * (SAMPLE_BYTES - 1) + "é".encode(), True),
    ],
)
def test_what_is_no_text_is_told_from_text_with_a_bad_line(
    data: bytes, expected: bool, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    path.write_bytes(data)

    assert is_text(path) is expected


def test_a_problem_says_its_place_once() -> None:
    whole = LineProblem(line=5, field="line", rule="must be JSON")

    assert str(whole) == "line 5 must be JSON"
    assert str(LineProblem(line=4, field="role", rule="is missing")) == "line 4: role is missing"


@pytest.mark.parametrize("field", ["session_id", "user_id"])
@pytest.mark.parametrize("value", [None, "", "  ", 7, "\u0000"])
def test_a_line_of_nobody_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        said_in(line(**{field: value}), project_id="p")

    assert caught.value.problems[0].field == field


def test_what_a_line_is_depends_on_all_it_says_and_where_it_stands() -> None:
    def key(ordinal: int = 1, project_id: str = "p", **fields: Any) -> str:
        return said_in(line(**fields), project_id=project_id).key(ordinal)

    others = {
        key(2),
        key(project_id="q"),
        key(user_id="v"),
        key(session_id="t"),
        key(content="hi "),
        key(role="system"),
        key(created_at="2026-01-01T00:00:00Z"),
        key(metadata={"a": 1}),
        key(metadata={"a": True}),
    }

    assert key() == key()
    assert key(metadata={"a": 1, "b": 2}) == key(metadata={"b": 2, "a": 1})
    assert len(others | {key()}) == 10
    assert len(key()) <= 256
