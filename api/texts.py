"""Text that callers send."""

import re
from typing import Annotated, Any, ClassVar, Final, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

_HALF_CHARACTER: Final = re.compile("[\ud800-\udfff]")


class Sent(BaseModel):
    """What callers send: text that no store and no JSON can carry is refused in every field.

    What is null counts as not given: clients send every field they have. Fields that nobody knows
    are ignored: the client's next version may send more.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    is_mended: ClassVar[bool] = False
    """Whether half characters are mended further in, and so let through here."""

    @field_validator("*", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        if not cls.is_mended and _holds_half(value):
            raise ValueError("must hold no lone surrogate")
        return value

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, sent: Any) -> Any:
        if not isinstance(sent, dict):
            return sent
        fields = cast("dict[str, Any]", sent)
        return {name: value for name, value in fields.items() if value is not None}


def _holds_half(value: Any) -> bool:
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, str):
            if not inner.isascii() and _HALF_CHARACTER.search(inner):
                return True
        elif isinstance(inner, list):
            waiting.extend(cast("list[Any]", inner))
        elif isinstance(inner, dict):
            fields = cast("dict[str, Any]", inner)
            waiting.extend((*fields, *fields.values()))
    return False


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


Said = Annotated[str, AfterValidator(_not_blank), Field(json_schema_extra={"pattern": r"\S"})]
"""Text that is not blank: all that is blank would share one slot."""
