"""The one base of our values: frozen, closed to unknown fields."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value: it never changes, and a field nobody declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
