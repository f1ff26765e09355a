"""Project settings on MongoDB: what is stored, and which revision of it is applied.

A revision is a document of its own that never changes: an extraction that was begun under one finds
it as it was. The project's document only says which is the newest and which one counts.
"""

import time
from copy import deepcopy
from datetime import datetime
from typing import Any, Final, TypeVar

import structlog
from pydantic import ValidationError
from pymongo.errors import DuplicateKeyError

from pipeline.errors import SettingsUnreadableError
from pipeline.stores.mongo import Collection, Database, Document
from schemas.base import Frozen
from schemas.project import ProjectSettings, Revision

Key = TypeVar("Key")
Value = TypeVar("Value")

log = structlog.get_logger(__name__)

FRESH_SECONDS: Final = 1.0
"""How old what a process knows of a project may be."""
KNOWN: Final = 4096
"""How many projects, and how many revisions, a process remembers."""


class ProjectState(Frozen):
    """Which revisions of a project's settings there are; 0 is none."""

    project_id: str
    stored_revision: int = 0
    stored_at: datetime | None = None
    applied_revision: int = 0
    applied_at: datetime | None = None


class MongoProjects:
    """Port `Projects` on `projects` and `project_revisions`, and what changes them.

    Concurrency: any number of processes; of two that store at once each gets a revision of its own.
    """

    def __init__(self, database: Database) -> None:
        self._projects: Collection = database["projects"]
        self._revisions: Collection = database["project_revisions"]
        self._applied: dict[str, tuple[float, int]] = {}
        self._known: dict[tuple[str, int], Revision] = {}

    async def applied(self, project_id: str) -> Revision:
        """Return the settings that count now, as they were at most a second ago.

        Raises:
            SettingsUnreadableError: They are not as we stored them.
        """
        read_at, number = self._applied.get(project_id, (0.0, -1))
        now = time.monotonic()
        if number < 0 or now - read_at >= FRESH_SECONDS:
            number = (await self.state(project_id)).applied_revision
            _remember(self._applied, project_id, (now, number))
        found = await self.revision(project_id, number)
        if found is None:
            # Those of a project without any would extract what this one may not want extracted.
            raise _unreadable("project_revisions", _id(project_id, number))
        return found

    async def revision(self, project_id: str, number: int) -> Revision | None:
        """Return the settings of a revision.

        Raises:
            SettingsUnreadableError: They are not as we stored them.
        """
        if number == 0:
            return Revision()
        known = self._known.get((project_id, number))
        if known is None:
            document = await self._revisions.find_one({"_id": _id(project_id, number)})
            if document is None:
                return None
            try:
                known = Revision(number=number, settings=_settings(document["settings"]))
            except (ValidationError, KeyError):
                raise _unreadable("project_revisions", document["_id"]) from None
            _remember(self._known, (project_id, number), known)
        return known

    async def state(self, project_id: str) -> ProjectState:
        """Return which revisions there are."""
        document = await self._projects.find_one({"_id": project_id})
        return _state(project_id, document or {})

    async def all(self) -> list[ProjectState]:
        """Return every project that has settings, by name."""
        cursor = self._projects.find({}, sort=[("_id", 1)])
        return [_state(document["_id"], document) async for document in cursor]

    async def store(
        self, project_id: str, settings: ProjectSettings, *, after: int, now: datetime
    ) -> int | None:
        """Store settings as a new revision; they do not count yet.

        Args:
            project_id: Whose.
            settings: All of them.
            after: The revision they were decided from.
            now: When.

        Returns:
            The revision, or none where another one was stored meanwhile.
        """
        number = await self._kept(project_id, settings, after + 1)
        following: Document = {"stored_revision": number, "stored_at": now}
        if after == 0:
            try:
                await self._projects.insert_one({"_id": project_id, **following})
            except DuplicateKeyError:
                return number if await self._is_stored(project_id, number) else None
            return number
        result = await self._projects.update_one(
            {"_id": project_id, "stored_revision": after}, {"$set": following}
        )
        # The driver sends an update again whose answer was lost, and then finds its own.
        is_done = result.matched_count == 1 or await self._is_stored(project_id, number)
        return number if is_done else None

    async def apply(self, project_id: str, number: int, *, now: datetime) -> bool:
        """Let the newest stored revision count, within a second everywhere. Idempotent.

        Returns:
            Whether it does; not where another one was stored meanwhile.
        """
        result = await self._projects.update_one(
            {"_id": project_id, "stored_revision": number},
            {"$set": {"applied_revision": number, "applied_at": now}},
        )
        self._applied.pop(project_id, None)
        return result.matched_count == 1

    async def _kept(self, project_id: str, settings: ProjectSettings, number: int) -> int:
        """Keep settings under the first number that is free: one may be left by a crash."""
        document: Document = {
            "project_id": project_id,
            "settings": settings.model_dump(mode="json", exclude_unset=True),
        }
        while True:
            try:
                await self._revisions.insert_one({"_id": _id(project_id, number), **document})
            except DuplicateKeyError:
                number += 1
            else:
                return number

    async def _is_stored(self, project_id: str, number: int) -> bool:
        return (await self.state(project_id)).stored_revision == number


def _settings(stored: Document) -> ProjectSettings:
    """Return stored settings, without keys that only a newer version knows: the log names them."""
    try:
        return ProjectSettings.model_validate(stored)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        if any(problem["type"] != "extra_forbidden" for problem in problems):
            raise
        added = [problem["loc"] for problem in problems]
        log.warning("settings_of_a_newer_version", keys=[".".join(map(str, key)) for key in added])
    known = deepcopy(stored)
    for *groups, key in added:
        group: Any = known
        for step in groups:
            group = group[step]
        del group[key]
    return ProjectSettings.model_validate(known)


def _remember(known: dict[Key, Value], key: Key, value: Value) -> None:
    """Remember one more, and forget the oldest where there are too many."""
    known.pop(key, None)
    if len(known) >= KNOWN:
        del known[next(iter(known))]
    known[key] = value


def _id(project_id: str, number: int) -> str:
    return f"{number}:{project_id}"


def _state(project_id: str, document: Document) -> ProjectState:
    fields = {name: value for name, value in document.items() if name != "_id"}
    try:
        return ProjectState.model_validate({"project_id": project_id, **fields})
    except ValidationError:
        raise _unreadable("projects", project_id) from None


def _unreadable(collection: str, document_id: str) -> SettingsUnreadableError:
    return SettingsUnreadableError(
        f"the settings of a project can't be read: mend the document {document_id} in the"
        f" collection {collection}, or put it back from a backup"
    )
