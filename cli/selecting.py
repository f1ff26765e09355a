"""The options that say which snapshots, the same for every command that takes them."""

from datetime import datetime
from typing import Annotated, Final

import typer

from cli.options import as_utc, taking
from cli.output import Output, counted
from pipeline.errors import JobError
from schemas.extraction import Outcome
from schemas.failure import FailureClass, LetterQuery, LetterState
from schemas.job import Lost, Messages, Selection


def selection(
    *,
    project: Annotated[str | None, typer.Option(help="Only this project's.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    session: Annotated[str | None, typer.Option(help="Only this conversation, by its id.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(help="Cut then or later (UTC); with --topic: appended to it then or later."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(help="Cut before then (UTC); with --topic: appended to it before then."),
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="What counts was extracted by this version.")
    ] = None,
    outcome: Annotated[
        list[Outcome] | None, typer.Option(help="What counts came to this; repeatable.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Messages of this topic are about.")] = None,
    partition: Annotated[int | None, typer.Option(help="Of the topic, only this.", min=0)] = None,
    from_offset: Annotated[
        int | None, typer.Option(help="Of the partition, from this message on.", min=0)
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option(help="Of the partition, up to before this message.", min=1)
    ] = None,
    letter_group: Annotated[
        str | None, typer.Option(help="Dead letters of this fingerprint are about.")
    ] = None,
    letter_reason: Annotated[
        str | None, typer.Option(help="Dead letters of this reason are about.")
    ] = None,
    letter_class: Annotated[
        FailureClass | None, typer.Option(help="Dead letters of this class are about.")
    ] = None,
) -> Selection:
    """Return which snapshots the options ask for.

    Raises:
        JobError: They say nothing together.
    """
    letters = LetterQuery(
        state=LetterState.DEAD,
        fingerprint=letter_group,
        reason=letter_reason,
        failure_class=letter_class,
    )
    messages = None
    if topic is not None:
        messages = Messages(
            topic=topic,
            partition=partition,
            first_offset=from_offset,
            end_offset=to_offset,
            since=as_utc(since),
            until=as_utc(until),
        )
    elif (partition, from_offset, to_offset) != (None, None, None):
        raise JobError("partitions and offsets are of a topic: name it by --topic")
    return Selection(
        project_id=project,
        user_id=user,
        session_id=session,
        since=None if messages else as_utc(since),
        until=None if messages else as_utc(until),
        version=version,
        outcomes=tuple(dict.fromkeys(outcome or ())),
        letters=None if letters == LetterQuery(state=LetterState.DEAD) else letters,
        messages=messages,
    )


selecting: Final = taking(selection, into="selected")
"""Gives a command these options, and it what they ask for as `selected`."""


def say_lost(lost: tuple[Lost, ...], output: Output) -> None:
    """Say what a topic does not have any more, and what is taken instead."""
    for each in lost:
        gone = "the earliest" if each.offsets is None else counted(each.offsets, "message")
        instead = (
            "all that MongoDB has"
            if each.until is None
            else f"what MongoDB has that was cut before {each.until:%Y-%m-%d %H:%M:%S}"
        )
        output.say(
            f"  partition {each.partition}: {gone} asked for are gone from the topic (retention);"
            f" taken instead: {instead}, which may be more than was asked for"
        )
