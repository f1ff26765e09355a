"""Project settings as decisions: what a block says, what may not change, what differs. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import ValidationError

from pipeline.errors import ConfigurationError
from pipeline.extracting.redaction import holds_secret
from pipeline.projects.files import BLOCK, Block, Path, read_block
from pipeline.projects.keys import BY_PATH, Effect
from schemas.project import CustomType, ProjectSettings

SHOWN: Final = 60
"""How much of a value is shown where settings are compared."""
_OURS: Final = "Value error, "
_NO_KIND: Final = frozenset({"entity", "preferences"})
"""What may be enabled and is no kind of memory here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about one key, and what to do about it."""

    path: str
    """As in the file: `extraction.enabled`."""
    detail: str
    line: int | None = None

    def __str__(self) -> str:
        """Return it as one line."""
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{self.path}: {self.detail}"


class RefusedSettingsError(ConfigurationError):
    """Settings that are not stored; it says of each finding where it is and what to do."""

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        said = "; ".join(map(str, self.findings))
        super().__init__(f"{name} is refused, and nothing was changed: {said}")


def settings_of(text: str, *, name: str, stored: ProjectSettings | None) -> ProjectSettings:
    """Return the settings that a file holds.

    Args:
        text: What is in the file.
        name: What messages call it.
        stored: What the project has stored, which the new ones must go on from.

    Raises:
        RefusedSettingsError: They can't be had, or change what may not change.
        ConfigurationError: The file can't be read, or has no `memory:` block.
    """
    block = read_block(text, name=name)
    secrets = [
        _finding(block, path, "looks like a secret; put it into an environment variable instead")
        for path, value in _texts(block.values)
        if holds_secret(value)
    ]
    if secrets:
        raise RefusedSettingsError(name, secrets)
    try:
        settings = ProjectSettings.model_validate(block.values)
    except ValidationError as error:
        raise RefusedSettingsError(name, list(_invalid(block, error))) from None
    if stored is not None and (changed := forbidden_changes(stored, settings)):
        placed = [_placed(block, finding) for finding in changed]
        raise RefusedSettingsError(name, placed)
    return settings


def forbidden_changes(stored: ProjectSettings, new: ProjectSettings) -> list[Finding]:
    """Return what is fixed and not as it was stored; empty if the new settings may follow."""
    found: list[Finding] = []
    types = {key.name: key.type for key in new.metadata_partition_key}
    for key in stored.metadata_partition_key:
        path = f"metadata_partition_key.{key.name}"
        if key.name not in types:
            found.append(_fixed(path, "was declared and can't be taken away: put it back"))
        elif types[key.name] is not key.type:
            found.append(
                _fixed(path, f"is declared as {key.type}: put that back, or declare another name")
            )
    for declared in stored.custom_memory_types:
        path = f"custom_memory_types.{declared.name}"
        follower = new.custom_type(declared.name)
        if follower is None:
            found.append(_fixed(path, "was declared and can't be taken away: put it back"))
        elif _says(follower) != _says(declared):
            found.append(
                _fixed(
                    path,
                    "its tags and collection can't change: put them back, or declare another name",
                )
            )
    return found


def without_effect(settings: ProjectSettings) -> list[Finding]:
    """Return the keys that are set, accepted, and do nothing here."""
    found = [
        Finding(path=path, detail=f"without effect: {key.meaning}")
        for path, key in BY_PATH.items()
        if key.effect is Effect.WITHOUT_EFFECT and _is_set(settings, path)
    ]
    idle = [each for each in settings.extraction.enabled if each in _NO_KIND]
    return found + [
        Finding(
            path="extraction.enabled",
            detail=f"without effect: `{each}` is no kind of its own here; enable `semantic`",
        )
        for each in idle
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A key that two settings have differently."""

    path: str
    before: str
    after: str


def differences(before: ProjectSettings, after: ProjectSettings) -> list[Difference]:
    """Return what differs in effect, by path; what is left out counts as its default."""
    old, new = dict(_leaves(_plain(before))), dict(_leaves(_plain(after)))
    paths = sorted({*old, *new}, key=_dotted)
    return [
        Difference(path=_dotted(path), before=_shown(old, path), after=_shown(new, path))
        for path in paths
        if old.get(path, _ABSENT) != new.get(path, _ABSENT)
    ]


_ABSENT: Final = object()


def _shown(values: Mapping[Path, Any], path: Path) -> str:
    if path not in values:
        return "not there"
    text = "none" if values[path] is None else str(values[path])
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _plain(settings: ProjectSettings) -> dict[str, Any]:
    """Return settings as plain values, with what is declared by name rather than by place."""
    plain = settings.model_dump(mode="json")
    for listed in ("metadata_partition_key", "custom_memory_types"):
        plain[listed] = {each.pop("name"): each for each in plain[listed]}
    words = plain["extraction"]["vocabulary"]
    plain["extraction"]["vocabulary"] = {each["name"]: each["description"] for each in words}
    return plain


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _leaves(inner, (*path, name))
    elif value != {}:
        yield path, value


def _texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from _texts(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _texts(inner, (*path, index))


def _invalid(block: Block, error: ValidationError) -> Iterator[Finding]:
    for problem in error.errors(include_input=False, include_url=False, include_context=False):
        path = tuple(step for step in problem["loc"] if step != "[key]")
        yield _finding(block, path, _rule(_dotted(path), problem["type"], problem["msg"]))


def _rule(path: str, kind: str, message: str) -> str:
    key = BY_PATH.get(path)
    if key is not None and key.effect is Effect.REFUSED:
        return f"refused: {key.meaning}"
    if kind == "extra_forbidden":
        group = path.rpartition(".")[0]
        known = sorted({_next_step(known, group) for known in BY_PATH} - {""})
        return f"is no key of `{group or BLOCK}`; there are: {', '.join(known)}"
    if path == "extraction.enabled" and kind == "tuple_type":
        return "must be a list: [] extracts nothing; leave the line out to enable all kinds"
    return message.removeprefix(_OURS)


def _next_step(known: str, group: str) -> str:
    """Return the name of a known key, or of the group it is in, inside of a group."""
    bare = known.replace("[]", "")
    steps = [step for step in group.split(".") if step and not step.isdigit()]
    inside = bare.split(".")
    return inside[len(steps)] if inside[: len(steps)] == steps and len(inside) > len(steps) else ""


def _finding(block: Block, path: Path, detail: str) -> Finding:
    return Finding(path=_dotted(path) or BLOCK, detail=detail, line=block.line(path))


def _placed(block: Block, finding: Finding) -> Finding:
    """Return a finding of a declared name with the line of what declares it, or would."""
    listed, _, name = finding.path.partition(".")
    places = cast("list[Any]", block.values.get(listed) or [])
    index = next((place for place, each in enumerate(places) if each.get("name") == name), None)
    path: Path = (listed,) if index is None else (listed, index)
    return Finding(path=finding.path, detail=finding.detail, line=block.line(path))


def _fixed(path: str, detail: str) -> Finding:
    return Finding(path=path, detail=detail)


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


def _says(declared: CustomType) -> tuple[str | None, frozenset[str]]:
    return declared.collection, declared.tag_names


def _is_set(settings: Any, path: str) -> bool:
    """Return whether a file named a key, in any member of a list."""
    name, _, rest = path.partition(".")
    bare = name.removesuffix("[]")
    if bare not in settings.model_fields_set:
        return False
    inner = getattr(settings, bare)
    if not rest:
        return inner is not None
    members = cast("tuple[Any, ...]", inner) if name.endswith("[]") else (inner,)
    return any(_is_set(member, rest) for member in members)
