"""Text that callers send."""

from typing import Annotated

from pydantic import AfterValidator, Field


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


Said = Annotated[str, AfterValidator(_not_blank), Field(json_schema_extra={"pattern": r"\S"})]
"""Text that is not blank: all that is blank would share one slot."""
