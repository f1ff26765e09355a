"""What a person sees while a conversation becomes memory: each new thing once, as it happens."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from cli.output import Output, counted
from consumers.wiring import Installation
from pipeline.reading.memories import text_of
from schemas.extraction import PartState
from schemas.identity import DEFAULT_PROJECT, ReadScope
from schemas.record import RunState

_WIDTH: Final = 88
LEGEND: Final = (
    ("turn", "a message is recorded"),
    ("snapshot", "turns are cut to be read together; in brackets, why now"),
    ("model", "a model has answered for a snapshot"),
    ("settled", "a snapshot has its outcome"),
    ("record", "something is remembered; past: it was over when it was said"),
    ("corrected", "a later turn says it was wrong; replaced, ended: it is so no longer"),
)
"""What the first word of each line means."""
CLOSED: Final = {
    RunState.REPLACED: "replaced",
    RunState.WRONG: "corrected",
    RunState.ENDED: "ended",
}


@dataclass(slots=True)
class _Seen:
    turns: set[str] = field(default_factory=set[str])
    snapshots: set[str] = field(default_factory=set[str])
    answers: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    outcomes: set[str] = field(default_factory=set[str])
    contents: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])


@dataclass(slots=True, kw_only=True)
class Tally:
    """Where everything stands, in numbers."""

    turns: int = 0
    open_turns: int = 0
    snapshots: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    pending: int = 0
    records: Counter[str] = field(default_factory=Counter[str])
    """Records with something current, by kind."""
    closed: int = 0
    """Contents that a later one replaced, corrected or ended."""
    reinforced: int = 0
    """Contents that were said more than once."""
    model_calls: int = 0
    models: set[str] = field(default_factory=set[str])
    letters: int = 0
    waiting: Counter[str] = field(default_factory=Counter[str])
    """What pending extractions wait for, by reason."""


class Watch:
    """Reads the ledger again and again and says what is new. It changes nothing."""

    def __init__(self, parts: Installation, output: Output) -> None:
        self._parts = parts
        self._output = output
        self._seen = _Seen()

    async def look(self) -> Tally:
        """Say what is new since the last look; return where everything stands."""
        tally = Tally(letters=await self._parts.letters.count())
        await self._turns(tally)
        await self._snapshots(tally)
        await self._records(tally)
        return tally

    async def _turns(self, tally: Tally) -> None:
        fields = {"seq": 1, "role": 1, "content": 1, "identity": 1, "open": 1}
        cursor = self._parts.database["turns"].find({}, fields).sort("recorded_at", 1)
        async for turn in cursor:
            tally.turns += 1
            tally.open_turns += "open" in turn
            if turn["_id"] in self._seen.turns:
                continue
            self._seen.turns.add(turn["_id"])
            who = f"{turn['identity']['user_id']}/{turn['identity']['session_id']}"
            self._output.say(
                f"  turn      {who} #{turn['seq']} {turn['role']}: {_short(str(turn['content']))}"
            )

    async def _snapshots(self, tally: Tally) -> None:
        async for document in self._parts.database["snapshots"].find().sort("created_at", 1):
            tally.snapshots += 1
            name = (
                f"{document['identity']['user_id']}/{document['identity']['session_id']}"
                f" #{document['first_seq']}-{document['last_seq']}"
            )
            if document["_id"] not in self._seen.snapshots:
                self._seen.snapshots.add(document["_id"])
                self._output.say(f"  snapshot  {name} ({document['reason']})")
            await self._extraction(f"{document['_id']}:{document['active_run']}", name, tally)

    async def _extraction(self, extraction_id: str, name: str, tally: Tally) -> None:
        extraction = await self._parts.extractions.get(extraction_id)
        if extraction is None:
            tally.pending += 1
            return
        failed_calls = sum(
            attempt.failure.request_id is not None for attempt in extraction.attempts
        )
        tally.model_calls += failed_calls
        for index, part in enumerate(extraction.parts):
            if part.reply is None:
                continue
            tally.model_calls += part.reply.calls
            tally.models.add(part.reply.model)
            if (extraction_id, index) not in self._seen.answers:
                self._seen.answers.add((extraction_id, index))
                self._output.say(
                    f"  model     {name}: {part.reply.model} answered,"
                    f" {part.reply.prompt_tokens or 0} + {part.reply.completion_tokens or 0} tokens"
                    + (
                        f", {counted(part.reply.secrets_removed, 'secret')} removed"
                        if part.reply.secrets_removed
                        else ""
                    )
                )
        if extraction.outcome is None:
            tally.pending += 1
            if extraction.attempts:
                tally.waiting[extraction.attempts[-1].failure.reason] += 1
            return
        tally.outcomes[extraction.outcome] += 1
        if extraction_id not in self._seen.outcomes:
            self._seen.outcomes.add(extraction_id)
            aside = Counter(item.reason for part in extraction.parts for item in part.set_aside)
            reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(aside.items()))
            self._output.say(
                f"  settled   {name}: {extraction.outcome}"
                + (f" (set aside: {reasons})" if reasons else "")
                + (
                    " (a part is dead)"
                    if any(part.state is PartState.DEAD for part in extraction.parts)
                    else ""
                )
            )

    async def _records(self, tally: Tally) -> None:
        async for record in self._parts.records.of_scope(ReadScope(project_id=DEFAULT_PROJECT)):
            states = Counter(run.state for run in record.runs)
            if states[RunState.CURRENT]:
                tally.records[record.kind] += 1
            tally.closed += sum(states[state] for state in CLOSED)
            tally.reinforced += sum(len(run.assertions) > 1 for run in record.runs)
            for run in record.runs:
                text = text_of(run.content)
                key = (record.record_id, run.assertions[0])
                word = CLOSED.get(run.state, "record" if run.state is RunState.CURRENT else "past")
                if self._seen.contents.get(key) == word:
                    continue
                self._seen.contents[key] = word
                owner = record.scope.owner or "everybody"
                self._output.say(f"  {word:<9} {owner} [{record.kind}] {_short(text)}")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
