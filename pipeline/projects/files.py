"""The `memory:` block of a YAML file, with the line of everything in it.

Stricter than YAML: a key that stands twice, and a value written once and meant in several places,
are refused. The first loses half of what somebody wrote, the second can grow beyond any bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, cast

import yaml

from pipeline.errors import ConfigurationError
from pipeline.extracting.redaction import holds_secret

BLOCK: Final = "memory"
LARGEST: Final = 256 * 1024
"""The most characters of a file."""
DEPTH: Final = 12
"""How deep values may nest."""
FILE_DEPTH: Final = 200
"""The same of other blocks, which are none of ours."""

_UNREADABLE: Final = (
    yaml.YAMLError,
    ValueError,
    OverflowError,
    KeyError,
    IndexError,
    AttributeError,
)
"""What the parser raises for a value that is not of the type that it is marked as."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The block as plain values."""

    values: Mapping[str, Any]
    lines: Mapping[Path, int]
    """Where each value begins, counted from 1; the empty path is the block's own."""

    def line(self, path: Path) -> int:
        """Return the line of a value, or of the nearest there is that it would be in."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]


def read_block(text: str, *, name: str) -> Block:
    """Return the block of a file's text.

    Args:
        text: What is in the file.
        name: What messages call it.

    Raises:
        ConfigurationError: It is no YAML, or has no such block; the message names the line, and
            what to do.
    """
    if len(text) > LARGEST:
        raise ConfigurationError(f"{name} has more than {LARGEST} characters: name another file")
    root = _Reader(name).mapping(text)
    block = root.get(BLOCK)
    if block is None:
        raise ConfigurationError(
            f"{name} has no `{BLOCK}:` key, so nothing was changed: add the block, or name the"
            " file that has it"
        )
    _, node = block
    if _is_null(node):
        return Block(values={}, lines={(): _line(node)})
    if not isinstance(node, yaml.MappingNode):
        raise ConfigurationError(f"{name}, line {_line(node)}: `{BLOCK}` must be a block of keys")
    lines: dict[Path, int] = {}
    values = _Reader(name).value(node, (), lines)
    return Block(values=cast("dict[str, Any]", values), lines=lines)


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name

    def mapping(self, text: str) -> dict[str, tuple[int, yaml.Node]]:
        """Return the keys of the file, each with its line and what it holds."""
        try:
            depth = 0
            for event in yaml.parse(text, Loader=yaml.SafeLoader):
                depth += isinstance(event, yaml.CollectionStartEvent)
                depth -= isinstance(event, yaml.CollectionEndEvent)
                # Before it is read further: what nests without end takes the parser minutes.
                if depth > FILE_DEPTH:
                    raise self._refused(event, f"values nest deeper than {FILE_DEPTH}")
                if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                    raise self._refused(event, "write the value out; `&` and `*` are not read")
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
            raise ConfigurationError(
                f"{self._name}{where}: is no YAML that can be read; see its indentation, colons and"
                " quotes there"
            ) from None
        except (yaml.YAMLError, RecursionError):
            raise ConfigurationError(
                f"{self._name}: is no YAML that can be read; is it the right file?"
            ) from None
        if not isinstance(root, yaml.MappingNode):
            raise ConfigurationError(f"{self._name} has no `{BLOCK}:` key: is it the right file?")
        return self._pairs(root)

    def value(self, node: yaml.Node, path: Path, lines: dict[Path, int]) -> Any:
        """Return the plain value of a node, and note its lines."""
        lines[path] = _line(node)
        if len(path) > DEPTH:
            raise self._refused(node, f"values nest deeper than {DEPTH}")
        if isinstance(node, yaml.MappingNode):
            values: dict[str, Any] = {}
            for key, (line, inner) in self._pairs(node).items():
                values[key] = self.value(inner, (*path, key), lines)
                lines[*path, key] = line
            return values
        if isinstance(node, yaml.SequenceNode):
            return [
                self.value(inner, (*path, index), lines)
                for index, inner in enumerate(cast("list[yaml.Node]", node.value))
            ]
        try:
            scalar = yaml.SafeLoader("").construct_object(node)  # pyright: ignore[reportUnknownMemberType] (its types are not told)
        except _UNREADABLE:
            raise self._refused(
                node, "put the value in quotes; it can't be read as it is"
            ) from None
        if not isinstance(scalar, str | int | float | bool | None) or isinstance(scalar, date):
            raise self._refused(node, "put the value in quotes; it is no text, number or flag")
        return scalar

    def _pairs(self, node: yaml.MappingNode) -> dict[str, tuple[int, yaml.Node]]:
        pairs: dict[str, tuple[int, yaml.Node]] = {}
        for key, inner in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise self._refused(key, "a key must be a plain word")
            if holds_secret(key.value):
                raise self._refused(
                    key, "a key looks like a secret; put it into an environment variable instead"
                )
            if key.value in pairs:
                raise self._refused(key, f"`{key.value}` stands here a second time: keep one")
            pairs[key.value] = (_line(key), inner)
        return pairs

    def _refused(self, at: yaml.Node | yaml.Event, rule: str) -> ConfigurationError:
        return ConfigurationError(f"{self._name}, line {_line(at)}: {rule}")


def _is_null(node: yaml.Node) -> bool:
    return node.tag == "tag:yaml.org,2002:null"


def _line(at: yaml.Node | yaml.Event) -> int:
    return 0 if at.start_mark is None else at.start_mark.line + 1
