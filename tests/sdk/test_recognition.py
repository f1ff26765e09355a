"""Which turns are new: once each, whatever is sent again, cut off, edited, or told by others."""

from collections.abc import Sequence
from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from afterturn.recognition import BEFORE, Entry, Heard, fresh


class Process:
    """A process that records, and the store of a memory server, which several may share."""

    def __init__(self, store: dict[str, str] | None = None) -> None:
        self.log: list[Entry] = []
        self.store: dict[str, str] = {} if store is None else store

    def call(self, said: Sequence[str], answer: str | None = None, *, root: str = "") -> list[str]:
        """Take a request and its answer; return what was new to this process."""
        texts = [*said, *([] if answer is None else [answer])]
        heard = [
            Heard(digest=blake2b(text.encode()).digest(), is_answer=text.startswith("a"))
            for text in texts
        ]
        news = fresh(self.log, heard, answers=0 if answer is None else 1, root=root)
        for new in news:
            self.store.setdefault(new.key, texts[new.index])
        if not root:
            self.log.extend(new.entry for new in news)
        return [texts[new.index] for new in news]

    @property
    def told(self) -> list[str]:
        """What the server has, in order."""
        return list(self.store.values())


def talk_of(words: Sequence[int], kinds: int) -> list[str]:
    """Return a conversation of users and answers by turns, that repeats itself a lot."""
    return [f"{'ua'[place % 2]}{word % kinds}" for place, word in enumerate(words)]


words = st.lists(st.integers(0, 99), min_size=2, max_size=24).map(
    lambda drawn: drawn[: len(drawn) // 2 * 2]
)


@given(words, st.sampled_from([1, 2, 3, 100]), st.data())
def test_full_histories_and_retries_in_any_process_record_each_turn_once_in_order(
    drawn: list[int], kinds: int, data: st.DataObject
) -> None:
    """Also where the same is said over and over: then only the place tells turns apart."""
    talk = talk_of(drawn, kinds)
    store: dict[str, str] = {}
    processes = [Process(store), Process(store)]
    for end in range(1, len(talk), 2):
        process = data.draw(st.sampled_from(processes))
        process.call(talk[:end], talk[end])
        for _ in range(data.draw(st.integers(0, 2))):
            again = data.draw(st.integers(0, end // 2)) * 2 + 1
            restarted = Process(store)
            data.draw(st.sampled_from([*processes, restarted])).call(talk[:again], talk[again])

    assert list(store.values()) == talk


@given(words, st.integers(2, 7), st.data())
def test_windows_record_each_turn_once_in_order(
    drawn: list[int], width: int, data: st.DataObject
) -> None:
    talk = [f"{'ua'[place % 2]}{place} {word}" for place, word in enumerate(drawn)]
    process = Process()
    for end in range(1, len(talk), 2):
        begin = max(0, end - width)
        for _ in range(data.draw(st.integers(1, 2))):
            process.call(talk[begin:end], talk[end])

    assert process.told == talk


def test_the_same_said_again_behind_a_window_is_said_again() -> None:
    """Unless the window reads just like the beginning of its conversation."""
    talk = ["u: hello", "a: hi", *["u: go on", "a: more?", "u: yes", "a: here"] * 6]
    process = Process()
    for end in range(1, len(talk), 2):
        process.call(talk[max(0, end - 9) : end], talk[end])

    assert process.told == talk


@given(st.integers(0, 9), st.integers(1, 5))
def test_of_an_edited_history_only_what_differs_is_recorded(edited: int, more: int) -> None:
    talk = [f"{'ua'[place % 2]}{place}" for place in range(10)]
    process = Process()
    for end in range(1, len(talk), 2):
        process.call(talk[:end], talk[end])
    changed = [*talk[:edited], f"{talk[edited]} changed", *talk[edited + 1 :]]
    for number in range(more):
        changed.append(f"u new {number}")
        process.call(changed, f"a new {number}")
        changed.append(f"a new {number}")

    assert process.told == [*talk, changed[edited], *changed[10:]]


@given(st.integers(0, 9), st.integers(1, 5))
def test_an_edit_is_new_to_another_process_for_a_few_turns_at_most(edited: int, more: int) -> None:
    talk = [f"{'ua'[place % 2]}{place}" for place in range(10)]
    first = Process()
    for end in range(1, len(talk), 2):
        first.call(talk[:end], talk[end])
    changed = [*talk[:edited], f"{talk[edited]} changed", *talk[edited + 1 :], "u new"]
    Process(first.store).call(changed, "a new")

    assert len(first.told) <= len(talk) + 3 + BEFORE


@given(st.integers(5, 9), st.integers(0, 20))
def test_a_window_costs_a_process_that_remembers_nothing_a_few_turns_at_most(
    width: int, forgets: int
) -> None:
    """Each of the two that begin in the middle; then its keys are those of the whole history."""
    talk = [f"{'ua'[place % 2]}{place}" for place in range(40)]
    store: dict[str, str] = {}
    processes = [Process(store)] * forgets + [Process(store), Process(store)] * len(talk)
    for end in range(1, len(talk), 2):
        processes[end // 2].call(talk[max(0, end - width) : end], talk[end])

    assert set(store.values()) == set(talk)
    assert len(store) <= len(talk) + 2 * BEFORE


def test_branches_of_one_conversation_share_what_they_share() -> None:
    process = Process()
    process.call(["u1"], "a1")
    process.call(["u1", "a1", "u2"], "a2")
    assert process.call(["u1", "a1", "u2"], "a2 otherwise") == ["a2 otherwise"]
    assert process.call(["u1", "a1", "u2 otherwise"], "a3") == ["u2 otherwise", "a3"]
    assert process.call(["u1", "a1", "u2", "a2", "u3"], "a4") == ["u3", "a4"]
    assert process.call(["u1", "a1", "u2", "a2 otherwise", "u3"], "a4") == ["u3", "a4"]
    assert process.call(["u1", "a1", "u2"], "a2 otherwise") == []


def test_a_summary_in_place_of_the_beginning_is_one_new_turn() -> None:
    talk = [f"{'ua'[place % 2]}{place}" for place in range(20)]
    process = Process()
    process.call(talk[:-1], talk[-1])

    assert process.call(["u: so far", *talk[12:], "u new"], "a new") == [
        "u: so far",
        "u new",
        "a new",
    ]


def test_what_the_vendor_keeps_is_told_apart_by_the_answer_it_follows() -> None:
    process = Process()
    for number in range(3):
        for _ in range(2):
            process.call(["u go on"], f"a{number}", root=f"r{number}")

    assert process.told == ["u go on", "a0", "u go on", "a1", "u go on", "a2"]
