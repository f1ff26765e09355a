"""Writes the table of keys for `docs/projects.md` (`python -m tests.projects_page`)."""

import sys

from pipeline.projects.keys import KEYS, Key


def table() -> str:
    """Return the table of every key, with what becomes of it."""
    rows = [
        f"| `{key.path}` | {key.default} | {key.effect}{_fixed(key)} | {_sentence(key.meaning)} |"
        for key in KEYS
    ]
    return "\n".join(("| key | default | what becomes of it | |", "|---|---|---|---|", *rows))


def _fixed(key: Key) -> str:
    return ", then fixed" if key.is_fixed else ""


def _sentence(meaning: str) -> str:
    ended = meaning if meaning.endswith(".") else f"{meaning}."
    return ended[0].upper() + ended[1:]


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
