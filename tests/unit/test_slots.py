"""What is compared, and what must differ."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.folding.slots import content_key, normalized, slot_key
from schemas.memory import (
    EpisodicContent,
    Kind,
    ProceduralContent,
    SemanticContent,
    TaxonomicContent,
)

FACT = SemanticContent(attribute="home", label="Oslo", text="Ade moved to Oslo")
TERM = TaxonomicContent(domain="Wine", term="Terroir", definition="Where it grows.")
WAY = ProceduralContent(
    name="Deploy",
    description="How we deploy.",
    steps=("Build.", "Push."),
    trigger_conditions=("a release", "a fix"),
    tools=("git", "make"),
)
EPISODE = EpisodicContent(title="The Move", summary="Ade moved.", outcome="Done.")


@pytest.mark.parametrize(
    ("text", "compared"),
    [
        ("ade moved to  Oslo", "ade moved to oslo"),
        ("  Ade moved to\n\tOslo. ", "ade moved to oslo"),
        ("Ade moved to Oslo . !", "ade moved to oslo"),
        ("Ade moved to OSLO…", "ade moved to oslo"),
        ("STRASSE", "strasse"),
        ("straße", "strasse"),
        ("ﬁle", "file"),
        ("彼は東京に住んでいる。", "彼は東京に住んでいる"),
        ("وہ لاہور میں رہتا ہے۔", "وہ لاہور میں رہتا ہے"),
        ("C#", "c#"),
        ("C++", "c++"),
        ("(see above)", "(see above)"),
        ("v1.2", "v1.2"),
        ("?!", "?!"),
        (" ", ""),
    ],
)
def test_case_spacing_and_final_punctuation_are_folded(text: str, compared: str) -> None:
    """Words stay, and so does punctuation that means something."""
    assert normalized(text) == compared


def test_every_character_is_normalized_once_and_for_all() -> None:
    """No code point, between letters, changes when it is normalized again."""
    chunk = 4096
    for start in range(0, sys.maxunicode + 1, chunk):
        once = normalized("a".join(["", *map(chr, range(start, start + chunk)), ""]))

        assert normalized(once) == once


@given(st.text())
def test_what_was_normalized_stays_as_it_is(text: str) -> None:
    """Normalizing is idempotent."""
    assert normalized(normalized(text)) == normalized(text)


def test_a_slot_is_named_by_what_its_kind_is_about() -> None:
    """Semantic by subject and attribute, taxonomic by domain and term, and so on."""
    assert slot_key(Kind.SEMANTIC, "User", FACT, "snp_1") == "user/home"
    assert slot_key(Kind.TAXONOMIC, "user", TERM, "snp_1") == "wine/terroir"
    assert slot_key(Kind.PROCEDURAL, "user", WAY, "snp_1") == "deploy"
    assert slot_key(Kind.EPISODIC, "user", EPISODE, "snp_1") == "snp_1/the move"
    assert slot_key(Kind.EPISODIC, "user", EPISODE, None) == "/the move"


@pytest.mark.parametrize(
    "attribute", ["preference:drink", "Preference: drink", "preference :drink."]
)
def test_an_attribute_is_the_same_however_it_is_spaced(attribute: str) -> None:
    """A model that spaces its attributes otherwise speaks of the same slot."""
    content = FACT.model_copy(update={"attribute": attribute})

    assert slot_key(Kind.SEMANTIC, "user", content, None) == "user/preference:drink"


def test_a_content_of_another_kind_has_no_slot() -> None:
    """A caller's mistake is no slot of its own."""
    with pytest.raises(TypeError, match="SemanticContent"):
        slot_key(Kind.EPISODIC, "user", FACT, None)


def _key(subject: str, attribute: str) -> str:
    content = FACT.model_copy(update={"attribute": attribute})
    return slot_key(Kind.SEMANTIC, subject, content, None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a/b", "c"), ("a", "b/c")),
        (("a\\", "b/c"), ("a/b\\", "c")),
        (("a\\/b", "c"), ("a/b", "c")),
        (("/", "a"), ("", "/a")),
    ],
)
def test_no_slash_in_a_name_makes_two_slots_meet(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    """Nor does a backslash."""
    assert _key(*one) != _key(*other)


@given(st.lists(st.sampled_from(("a", "/", "\\")), min_size=2, max_size=8), st.data())
def test_two_keys_are_equal_only_if_their_parts_are(
    characters: list[str], data: st.DataObject
) -> None:
    """Wherever what looks like one text is cut in two."""
    cuts = data.draw(st.sets(st.integers(1, len(characters) - 1), min_size=1))
    pairs = {("".join(characters[:cut]), "".join(characters[cut:])) for cut in cuts}
    pairs |= {(subject.removesuffix("/"), attribute) for subject, attribute in pairs}

    assert len({_key(*pair) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize(
    "other",
    [
        FACT.model_copy(update={"text": "ade moved to  OSLO."}),
        FACT.model_copy(update={"label": "in Oslo"}),
        TERM.model_copy(update={"definition": "where it grows", "related_terms": ("soil",)}),
        WAY.model_copy(update={"description": "Deploying."}),
        WAY.model_copy(update={"steps": ("build", "push")}),
        WAY.model_copy(
            update={"tools": ("Make", "git"), "trigger_conditions": ("a fix", "a release")}
        ),
        EPISODE.model_copy(update={"participants": ("Ade",), "outcome": "done"}),
    ],
)
def test_contents_that_say_the_same_have_one_key(
    other: SemanticContent | TaxonomicContent | ProceduralContent | EpisodicContent,
) -> None:
    """What only shortens, describes or points elsewhere makes no other content."""
    original = next(
        content for content in (FACT, TERM, WAY, EPISODE) if type(content) is type(other)
    )

    assert content_key(other) == content_key(original)


@pytest.mark.parametrize(
    "other",
    [
        FACT.model_copy(update={"text": "Ade moved to Bergen"}),
        TERM.model_copy(update={"definition": "What the soil gives."}),
        WAY.model_copy(update={"steps": ("Push.", "Build.")}),
        WAY.model_copy(update={"tools": ("git",)}),
        WAY.model_copy(update={"trigger_conditions": ("a release",)}),
        EPISODE.model_copy(update={"summary": "Ade stayed."}),
        EPISODE.model_copy(update={"outcome": None}),
    ],
)
def test_contents_that_say_something_else_have_another(
    other: SemanticContent | TaxonomicContent | ProceduralContent | EpisodicContent,
) -> None:
    """What one could act on makes another content."""
    original = next(
        content for content in (FACT, TERM, WAY, EPISODE) if type(content) is type(other)
    )

    assert content_key(other) != content_key(original)


def test_steps_are_not_taken_for_tools() -> None:
    """What stands in another field is another content."""
    one = ProceduralContent(name="n", description="d", steps=("a",), tools=("b",))
    other = ProceduralContent(name="n", description="d", steps=("a",), trigger_conditions=("b",))

    assert content_key(one) != content_key(other)
