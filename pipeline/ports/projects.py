"""What the steps need of the store of projects' settings."""

from typing import Protocol

from schemas.project import Revision


class Projects(Protocol):
    """The settings of projects."""

    async def applied(self, project_id: str) -> Revision:
        """Return the settings that count now, as they were at most a second ago.

        Raises:
            SettingsUnreadableError: They are not as we stored them.
        """
        ...

    async def revision(self, project_id: str, number: int) -> Revision | None:
        """Return the settings that were stored as a revision.

        Raises:
            SettingsUnreadableError: They are not as we stored them.
        """
        ...
