"""The options that say which letters, the same for every command that takes them."""

from datetime import datetime
from typing import Annotated, Final, Literal

import typer

from cli.options import as_utc, taking
from schemas.failure import FailureClass, LetterQuery
from schemas.topics import Stage


def letter_query(
    *,
    stage: Annotated[Stage | None, typer.Option(help="Where they failed.")] = None,
    failure_class: Annotated[
        FailureClass | None, typer.Option("--class", help="Whose fault it was.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="The stable code.")] = None,
    group: Annotated[str | None, typer.Option(help="A fingerprint, as `groups` has it.")] = None,
    disposition: Annotated[
        Literal["content", "exhausted"] | None,
        typer.Option(help="exhausted: only the fault must go; content: not only."),
    ] = None,
    project: Annotated[str | None, typer.Option(help="A project's id.")] = None,
    session: Annotated[str | None, typer.Option(help="A session's key, as `show` has.")] = None,
    model: Annotated[str | None, typer.Option(help="The model that was asked.")] = None,
    topic: Annotated[str | None, typer.Option(help="Where the message lay.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Died first then or later (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Died first before then (UTC).")] = None,
    deaths: Annotated[int | None, typer.Option(help="Died at least so often.", min=1)] = None,
) -> LetterQuery:
    """Return which letters the options ask for, in whatever state."""
    return LetterQuery(
        stage=stage,
        failure_class=failure_class,
        reason=reason,
        fingerprint=group,
        disposition=disposition,
        project_id=project,
        session=session,
        model=model,
        topic=topic,
        since=as_utc(since),
        until=as_utc(until),
        deaths=deaths,
    )


queried: Final = taking(letter_query, into="wanted")
"""Gives a command these options, and it what they ask for as `wanted`."""
