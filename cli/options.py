"""Options that several commands take, said once."""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

Command = Callable[..., None]


def taking(make: Callable[..., Any], *, into: str) -> Callable[[Command], Command]:
    """Return what gives a command the options of a function, and it what they make.

    Args:
        make: Has options as keyword-only arguments, and returns a value.
        into: The argument of the command that gets it, in the place of the options.
    """
    options = inspect.signature(make).parameters

    def decorated(command: Command) -> Command:
        own = inspect.signature(command).parameters

        def called(**given: Any) -> None:
            made = make(**{name: given.pop(name) for name in options})
            command(**{into: made}, **given)

        called.__name__, called.__doc__ = command.__name__, command.__doc__
        parameters = [*(each for name, each in own.items() if name != into), *options.values()]
        parameters.sort(key=lambda each: each.kind)
        called.__signature__ = inspect.Signature(parameters)
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return decorated


def as_utc(moment: datetime | None) -> datetime | None:
    """Return a time that is written without a zone as one of UTC."""
    return None if moment is None else moment.replace(tzinfo=moment.tzinfo or UTC)
