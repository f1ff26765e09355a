"""Laws of judging, for any JSON that an answer may hold."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.extracting.judging import Judgement, judge
from pipeline.extracting.quoting import Found, SaidTurn, is_greeting, normalized, normalized_quote
from pipeline.extracting.redaction import holds_secret
from pipeline.ids import OpaqueIds
from schemas.extraction import Reply
from schemas.memory import Kind
from schemas.turn import Role
from tests.builders import SNAPSHOT, snapshot, turn

IDS = OpaqueIds(b"k" * 32)
TURNS = (
    turn(1, "I live in Porto. My password is hunter2."),
    turn(2, "You might like Paris.", role=Role.ASSISTANT),
    turn(3, "I moved to Lisbon, thanks!"),
)
text = st.text(st.characters(), max_size=20)
surrogates = st.text(st.characters(categories=["Cs"]), max_size=3)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | text | surrogates
json = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=8
)
words = st.sampled_from(
    (
        *("user", "home", "Porto", "I live in Porto", "I moved to Lisbon", "hunter2", "now"),
        *("past", "adds", "ended", "2031-05-01", "last spring", "You might like Paris"),
        *("thanks", ""),
    )
)
fields = st.sampled_from(
    (
        *("subject", "attribute", "label", "text", "evidence", "quote", "relation", "holds"),
        *("title", "summary", "name", "description", "steps", "domain", "term", "definition"),
        *("confidence", "valid_from", "valid_until", "participants"),
    )
)
field_values = words | json | st.lists(st.integers(-1, 4), max_size=3) | st.lists(words, max_size=3)
likely = st.fixed_dictionaries(
    {
        "attribute": words,
        "label": words,
        "text": words,
        "evidence": st.lists(st.integers(0, 4), min_size=1, max_size=3),
        "quote": words,
    },
    optional={"subject": words, "valid_from": words, "valid_until": words, "holds": words},
)
items = likely | st.dictionaries(fields, field_values) | json
answers = st.dictionaries(st.sampled_from(list(Kind)) | text, st.lists(items, max_size=6) | json)


def judged(answer: dict[str, Any]) -> Judgement:
    """Return the judgement of an answer."""
    return judge(
        part=0,
        reply=Reply.model_construct(answer=answer, model="m"),
        kinds=tuple(Kind),
        turns=TURNS,
        snapshot=snapshot(1, 3),
        extraction_id=f"{SNAPSHOT}:0",
        version="v1",
        ids=IDS,
    )


@given(answers)
def test_every_item_is_accepted_or_set_aside_with_a_reason(answer: dict[str, Any]) -> None:
    """Nothing raises, nothing is lost, nothing counts twice; judging again changes nothing."""
    judgement = judged(answer)
    lists: list[Any] = [found for kind in Kind if isinstance(found := answer.get(kind), list)]
    items = sum(map(len, lists))

    assert len(judgement.assertions) + len(judgement.set_aside) == items
    assert len({made.assertion_id for made in judgement.assertions}) == len(judgement.assertions)
    assert len({made.position.key() for made in judgement.assertions}) == len(judgement.assertions)
    assert judged(answer) == judgement


@given(answers)
def test_what_is_accepted_rests_on_what_the_user_said(answer: dict[str, Any]) -> None:
    """Within the part, in the user's own words, without a secret, at a moment of a turn."""
    said = {one.seq: SaidTurn(one) for one in TURNS}
    for made in judged(answer).assertions:
        assert made.evidence is not None
        assert set(made.evidence.seqs) <= said.keys()
        cited = [said[seq] for seq in made.evidence.seqs]
        quote = normalized_quote(made.evidence.quote)
        assert any(one.find(quote) is Found.SAID for one in cited)
        assert any(one.role is Role.USER for one in cited)
        stored = made.model_dump_json()
        assert "hunter2" not in stored
        assert not holds_secret(stored)
        assert made.position.effective_at in {one.created_at for one in TURNS}


@given(st.lists(likely, max_size=5), st.lists(likely | json, max_size=5))
def test_neighbours_decide_nothing(good: list[Any], others: list[Any]) -> None:
    """I9: whatever comes after an item, its judgement is the same."""
    alone = judged({"semantic": good})
    beside = judged({"semantic": [*good, *others]})

    assert beside.assertions[: len(alone.assertions)] == alone.assertions
    assert [aside for aside in beside.set_aside if aside.index < len(good)] == list(alone.set_aside)


@given(st.text())
def test_normalizing_twice_is_normalizing_once(said: str) -> None:
    """Else a quote could differ from itself."""
    once = normalized(said)

    assert normalized(once) == once


@given(st.text())
def test_a_turn_holds_its_own_words(said: str) -> None:
    """Any line quoted in whole is found, unless it holds what is taken out."""
    quote = normalized_quote(said)
    found = SaidTurn(turn(1, said)).find(quote)

    assert (found is Found.NOWHERE) == (quote == "")


@given(st.lists(st.sampled_from(["hello", "thanks", "so much", "!", "，", "谢谢", " "])))
def test_greetings_together_are_greetings(said: list[str]) -> None:
    """However many, with whatever between."""
    assert is_greeting(normalized(" ".join(said)))
    assert not is_greeting(normalized(" ".join([*said, "Porto"])))
