"""What a search finds: by every arm what is current and in its scope, now, and nothing else."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from consumers.recording_wiring import recorder
from pipeline.embedding.ports import Purpose, Refused, Vector
from pipeline.reading import filters
from pipeline.reading.index import Mode
from pipeline.reading.wanted import Wanted
from pipeline.stores.mongo import SERVER_NOW_MS, Database
from schemas.identity import ReadScope, SessionIdentity, Visibility
from schemas.memory import EpisodicContent, Kind, ProceduralContent, TaxonomicContent
from schemas.turn import Role, TurnDraft
from tests.embedding import HashedEmbedder
from tests.searching_world import MARAS, MODES, PROJECT, World, world_over

BOATS = ("The boat is moored in Lagos.", "The boat needs a new sail.", "Mara drinks tea.")


@pytest.fixture
async def world(db: Database) -> World:
    return await world_over(db)


async def plant(world: World, texts: Sequence[str] = BOATS) -> None:
    for text in texts:
        await world.save(text)
    await world.embed()


class Broken(HashedEmbedder):
    """An embedder whose service is down."""

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> list[Vector | Refused]:
        raise ConnectionRefusedError


@pytest.mark.parametrize("mode", MODES)
async def test_each_mode_finds_what_answers_best_first(world: World, mode: Mode) -> None:
    await plant(world)

    found = await world.search("a sail for the boat", mode)

    assert found.hits[0].item.text == BOATS[1]
    assert (found.effective_mode, found.error) == (mode, None)


async def test_what_cannot_be_embedded_is_found_by_its_words_and_not_by_meaning(
    db: Database,
) -> None:
    world = await world_over(db, refusing={BOATS[1]})
    await plant(world)

    found = {mode: await world.find("a new sail", mode) for mode in MODES}

    assert found[Mode.TEXT] == [BOATS[1]]
    assert BOATS[1] in found[Mode.HYBRID]
    assert sorted(found[Mode.SEMANTIC]) == sorted(text for text in BOATS if text != BOATS[1])


@pytest.mark.parametrize("mode", [Mode.SEMANTIC, Mode.HYBRID])
async def test_without_an_embedder_words_decide_and_it_is_said(db: Database, mode: Mode) -> None:
    world = await world_over(db, is_embedded=False)
    await plant(world)

    found = await world.search("a new sail", mode)

    assert (found.effective_mode, found.error) == (Mode.TEXT, None)
    assert [hit.score > 0 for hit in found.hits] == [True, False, False]
    assert [hit.item.text for hit in found.hits[1:]] == [BOATS[2], BOATS[0]]


@pytest.mark.parametrize("mode", [Mode.SEMANTIC, Mode.HYBRID])
async def test_an_embedder_that_is_down_fails_no_search(db: Database, mode: Mode) -> None:
    await plant(await world_over(db))
    world = await world_over(db, embedder=Broken())

    found = await world.search("a new sail", mode)

    assert found.hits[0].item.text == BOATS[1]
    assert found.effective_mode is Mode.TEXT
    assert found.error is not None


async def test_a_query_the_model_refuses_is_answered_by_its_words(db: Database) -> None:
    world = await world_over(db, refusing={"a new sail"})
    await plant(world)

    found = await world.search("a new sail", Mode.SEMANTIC)

    assert (found.effective_mode, found.error) == (Mode.TEXT, "content.too_long")


async def test_a_scope_without_vectors_is_searched_by_words(world: World) -> None:
    await world.save(BOATS[0])

    hybrid = await world.search("the boat", Mode.HYBRID)
    semantic = await world.search("the boat", Mode.SEMANTIC)

    assert (hybrid.effective_mode, len(hybrid.hits)) == (Mode.TEXT, 1)
    assert (semantic.effective_mode, semantic.hits) == (Mode.SEMANTIC, [])


class Pointer:
    """Port `ActiveModel`."""

    def __init__(self, model: str | None) -> None:
        self.model = model

    async def active(self) -> str | None:
        return self.model


async def test_vectors_of_a_model_that_is_not_active_are_not_searched(db: Database) -> None:
    pointer = Pointer("another")
    world = await world_over(db, active=pointer)
    await plant(world)
    before = await world.search("a new sail", Mode.HYBRID)
    pointer.model = HashedEmbedder().model
    after = await world.search("a new sail", Mode.HYBRID)

    assert (before.effective_mode, before.error) == (Mode.TEXT, "another_model_is_active")
    assert (after.effective_mode, after.error) == (Mode.HYBRID, None)


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_forgotten_is_gone_at_once_whatever_the_cache_has(
    world: World, mode: Mode
) -> None:
    gone = await world.save("The boat is red.")
    await plant(world)
    assert "The boat is red." in await world.find("the boat is red", mode)
    world.reads.is_blind = True

    await world.parts.forgetter.forget(gone)

    assert "The boat is red." not in await world.find("the boat is red", mode)


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_replaced_is_gone_at_once_whatever_the_cache_has(
    world: World, mode: Mode
) -> None:
    await world.save("The boat is red.", label="paint")
    await plant(world)
    assert "The boat is red." in await world.find("the boat is red", mode)
    world.reads.is_blind = True

    await world.save("The boat is blue.", label="paint")

    assert "The boat is red." not in await world.find("the boat is red", mode)


@pytest.mark.parametrize("mode", MODES)
async def test_what_another_process_changes_is_seen_at_once(db: Database, mode: Mode) -> None:
    here, there = await world_over(db), await world_over(db)
    await plant(here)
    assert len(await here.find("boat", mode)) >= 2

    await there.save("The boat is called Bertha.", label="name")
    await there.embed()
    first = await here.find("boat called Bertha", mode)
    await there.save("The boat is called Ida.", label="name")
    await there.embed()
    second = await here.find("boat called Ida", mode)

    assert first[0] == "The boat is called Bertha."
    assert second[0] == "The boat is called Ida."
    assert "The boat is called Bertha." not in second


async def test_a_vector_that_comes_later_is_seen_at_once(world: World) -> None:
    await world.save(BOATS[0])
    assert await world.find("the boat", Mode.SEMANTIC) == []

    await world.embed()

    assert await world.find("the boat", Mode.SEMANTIC) == [BOATS[0]]


async def test_a_write_that_becomes_readable_late_is_not_missed(db: Database, world: World) -> None:
    """It has the time at which it began, before what was read meanwhile."""
    await world.save(BOATS[0])
    await world.find("boat")
    await world.save(BOATS[1])
    ago: dict[str, Any] = {"$subtract": [SERVER_NOW_MS, 20_000]}
    await db["records"].update_many({}, [{"$set": {"changed_ms": ago}}])

    assert sorted(await world.find("boat")) == sorted(BOATS[:2])


async def test_what_did_not_change_is_not_read_again(world: World) -> None:
    await plant(world)
    for _ in range(4):
        await world.find("nothing of this")

    # The first look at what changed lately reads it once more.
    assert (world.reads.whole, world.reads.taken) == (1, [len(BOATS)])


async def test_searches_at_once_share_what_is_read(world: World) -> None:
    await plant(world)
    await world.find("boat")
    world.reads.changes = 0

    found = await asyncio.gather(*(world.find("boat") for _ in range(20)))

    assert all(len(texts) == 2 for texts in found)
    assert 1 <= world.reads.changes <= 3


async def test_a_search_that_is_cut_off_leaves_the_others_alone(world: World) -> None:
    await plant(world)
    searches = [asyncio.create_task(world.find("boat")) for _ in range(5)]
    await asyncio.sleep(0)
    for search in searches[:3]:
        search.cancel()
    ended = await asyncio.gather(*searches, return_exceptions=True)

    assert all(isinstance(each, asyncio.CancelledError) for each in ended[:3])
    assert all(isinstance(each, list) and len(each) == 2 for each in ended[3:])
    assert len(await world.find("boat")) == 2


async def test_what_was_not_used_for_the_longest_time_is_dropped(db: Database) -> None:
    world = await world_over(db, cached_entries=5)
    scopes = [ReadScope(project_id=PROJECT, user_id=user) for user in ("ana", "bo")]
    for user in ("ana", "bo"):
        for number in range(3):
            await world.save(f"Boat {number}.", user=user)
    for scope in (*scopes, *scopes):
        assert len(await world.find("boat", scope=scope)) == 3

    assert world.reads.whole == 4


@pytest.mark.parametrize("mode", MODES)
async def test_each_given_field_narrows_and_none_widens(world: World, mode: Mode) -> None:
    planted: dict[tuple[str, str, Visibility], str] = {}
    for key in product((PROJECT, "q"), ("mara", "bo"), Visibility):
        project, user, visibility = key
        planted[key] = f"mark {len(planted)}"
        await world.save(planted[key], user=user, project=project, visibility=visibility)
    await world.embed()
    for _ in range(2):
        for user, visibility in product(("mara", "bo", None), (*Visibility, None)):
            scope = ReadScope(project_id=PROJECT, user_id=user, visibility=visibility)
            may = {
                mark
                for (project, owner, reach), mark in planted.items()
                if project == PROJECT and user in (None, owner) and visibility in (None, reach)
            }
            assert set(await world.find("mark", mode, scope=scope)) == may


@pytest.mark.parametrize("mode", MODES)
async def test_a_filter_leaves_what_passes_it_and_nothing_else(world: World, mode: Mode) -> None:
    for number in range(8):
        tier = ("gold", "silver")[number % 2]
        metadata: dict[str, Any] = {"tier": tier, "n": number, "at": f"2026-01-0{number + 1}"}
        await world.save(f"mark {number}", metadata=metadata, agent=f"agent {number % 3}")
    await world.embed()
    cases: tuple[tuple[dict[str, Any], set[int]], ...] = (
        ({"metadata.tier": "gold"}, {0, 2, 4, 6}),
        ({"metadata.n": {"$gte": 3, "$lt": 6}}, {3, 4, 5}),
        ({"metadata.at": {"$gt": "2026-01-06T12:00:00Z"}}, {6, 7}),
        ({"$nor": [{"metadata.at": {"$gt": "2026-01-02"}}]}, {0, 1}),
        ({"agent_id": "agent 1", "metadata.tier": "silver"}, {1, 7}),
        ({"metadata.none": "x"}, set()),
    )
    for sent, passing in cases:
        wanted = Wanted(filter=filters.parse(sent, None))
        found = await world.find("mark", mode, wanted=wanted)
        assert sorted(found) == [f"mark {number}" for number in sorted(passing)], sent


@pytest.mark.parametrize("mode", MODES)
async def test_what_does_not_pass_a_filter_is_never_scored(world: World, mode: Mode) -> None:
    for number in range(12):
        await world.save(f"mark {number}", metadata={"n": number})
    await world.embed()
    wanted = Wanted(filter=filters.parse({"metadata.n": 0}, None))
    await world.find("mark", mode)
    await world.find("mark", mode)
    world.reads.taken.clear()

    assert await world.find("mark 1 2 3", mode, limit=1, wanted=wanted) == ["mark 0"]
    assert world.reads.taken == [1]


@pytest.mark.parametrize("mode", MODES)
async def test_whose_a_memory_is_is_decided_by_the_last_query(
    db: Database, world: World, mode: Mode
) -> None:
    await plant(world)
    assert BOATS[0] in await world.find("moored in Lagos", mode)
    world.reads.is_blind = True

    await db["records"].update_many({}, {"$set": {"scope.owner": "bo"}})

    assert await world.find("moored in Lagos", mode) == []


async def test_of_several_contents_of_a_record_those_that_pass_are_found(world: World) -> None:
    for tier in ("gold", "silver"):
        await world.save(f"mark {tier}", label="same", metadata={"tier": tier}, upsert=False)
    wanted = Wanted(filter=filters.parse({"metadata.tier": "gold"}, None))

    assert await world.find("mark", wanted=wanted) == ["mark gold"]
    assert len(await world.find("mark")) == 2


async def test_terms_of_a_domain_procedures_by_tags_and_episodes_of_a_conversation(
    world: World,
) -> None:
    for domain in ("boats", "tea"):
        term = TaxonomicContent(domain=domain, term="pot", definition="A thing.")
        await world.save("t", content=term, kind=Kind.TAXONOMIC)
    for tags in (["a", "b"], ["c"]):
        steps = ProceduralContent(name=f"do {tags[0]}", description="A thing.", steps=())
        await world.save("p", content=steps, kind=Kind.PROCEDURAL, fields={"tags": list(tags)})
    for session in ("s1", "s2"):
        episode = EpisodicContent(title=session, summary="A thing.")
        await world.save("e", content=episode, kind=Kind.EPISODIC, session=session)

    async def found(kind: Kind, scope: ReadScope = MARAS, **wanted: Any) -> list[str]:
        return await world.find("thing", kinds=(kind,), scope=scope, wanted=Wanted(**wanted))

    assert await found(Kind.TAXONOMIC, domain="tea") == ["pot (tea): A thing."]
    assert await found(Kind.PROCEDURAL, tags=("b", "x")) == ["do a: A thing."]
    in_session = MARAS.model_copy(update={"session_id": "s2"})
    assert await found(Kind.EPISODIC, in_session, session_id="s2") == ["s2: A thing."]
    assert len(await found(Kind.EPISODIC)) == 2


@pytest.mark.parametrize("mode", MODES)
async def test_what_the_last_query_leaves_out_makes_room_for_more(world: World, mode: Mode) -> None:
    best = [await world.save(f"boat boat {number}") for number in range(6)]
    await plant(world)
    assert len(await world.find("boat boat", mode, limit=2)) == 2
    world.reads.is_blind = True
    for memory in best:
        await world.parts.forgetter.forget(memory)

    assert sorted(await world.find("boat boat", mode, limit=2)) == sorted(BOATS[:2])


async def test_history_is_found_on_request_and_what_was_current_at_a_time(world: World) -> None:
    before = await world.save("The boat is red.", label="paint")
    await world.save("The boat is blue.", label="paint")

    now = await world.find("boat")
    everything = await world.find("boat", wanted=Wanted(history=True))
    then = await world.find("boat", wanted=Wanted(as_of=before.since))
    earlier = Wanted(as_of=before.since - timedelta(days=1))

    assert now == ["The boat is blue."]
    assert sorted(everything) == ["The boat is blue.", "The boat is red."]
    assert then == ["The boat is red."]
    assert await world.find("boat", wanted=earlier) == []


@pytest.mark.parametrize("mode", [Mode.TEXT, Mode.HYBRID])
async def test_of_equal_scores_what_was_newest_when_it_was_asked_comes_first(
    db: Database, mode: Mode
) -> None:
    world = await world_over(db, is_embedded=False)
    saved = [await world.save("The boat is red.", label=f"l{number}") for number in range(4)]

    async def order(**options: Any) -> list[str]:
        found = await world.search("boat", mode, **options)
        return [hit.item.memory_id for hit in found.hits]

    ids = [memory.memory_id for memory in saved]
    assert await order() == ids[::-1]
    assert await order(moment=saved[1].since) == [ids[1], ids[0], ids[3], ids[2]]


async def test_a_threshold_is_of_the_mode(world: World) -> None:
    await plant(world)
    near = await world.search("The boat is moored in Lagos.", Mode.SEMANTIC, threshold=0.9)
    by_words = await world.search("tea", Mode.TEXT, threshold=0.01)

    assert [hit.item.text for hit in near.hits] == [BOATS[0]]
    assert [hit.item.text for hit in by_words.hits] == [BOATS[2]]


async def test_where_words_decide_instead_a_threshold_asks_for_a_shared_word(db: Database) -> None:
    world = await world_over(db, is_embedded=False)
    await plant(world)

    assert await world.find("tea", Mode.SEMANTIC, threshold=0.9) == [BOATS[2]]


TALK = ReadScope(project_id="default", user_id="mara", session_id="s")


async def say(world: World, *texts: str, user: str = "mara", **fields: Any) -> None:
    identity = SessionIdentity(user_id=user, session_id="s")
    async with recorder(world.parts) as recording:
        for text in texts:
            draft = TurnDraft(role=Role.USER, content=text, **fields)
            await recording.record(identity, draft)


async def turns(world: World, query: str, mode: Mode = Mode.TEXT, **options: Any) -> list[str]:
    asked = await world.searcher.understood(query, {mode})
    scope = options.pop("scope", TALK)
    found = await world.searcher.turns(scope, asked, mode=mode, limit=10, **options)
    return [hit.item.content for hit in found.hits]


async def test_a_turn_is_found_as_soon_as_it_is_recorded_however_old_the_talk(
    world: World,
) -> None:
    await say(world, "The boat is moored in Lagos.", *(f"Chat {number}." for number in range(220)))
    first = await turns(world, "Where is it moored?")
    await say(world, "Now it is moored in Faro.")

    assert first[0] == "The boat is moored in Lagos."
    assert "Now it is moored in Faro." in await turns(world, "Where is it moored?")


async def test_turns_are_of_their_user_and_pass_their_filter(world: World) -> None:
    await say(world, "My boat is red.", metadata={"tier": "gold"})
    await say(world, "My boat is blue.")
    await say(world, "My boat is green.", user="bo")
    gold = filters.parse({"metadata.tier": "gold"}, None)

    assert sorted(await turns(world, "boat")) == ["My boat is blue.", "My boat is red."]
    assert await turns(world, "boat", wanted=gold) == ["My boat is red."]
    shared = TALK.model_copy(update={"visibility": Visibility.ORG})
    assert await turns(world, "boat", scope=shared) == []
    anybodys = TALK.model_copy(update={"user_id": None})
    assert len(await turns(world, "boat", scope=anybodys)) == 3
    await say(world, "My boat is grey.", user="bo")
    await say(world, "My boat is black.", user="cy")
    assert len(await turns(world, "boat", scope=anybodys)) == 5


async def test_turns_nobody_embeds_are_searched_by_words(world: World) -> None:
    await say(world, "My boat is red.", "My tea is green.")

    assert await turns(world, "boat", Mode.SEMANTIC) == ["My boat is red.", "My tea is green."]


async def test_a_turn_is_gone_from_what_is_found_as_soon_as_it_is_deleted(
    db: Database, world: World
) -> None:
    await say(world, "My boat is red.", "My boat is blue.")
    assert len(await turns(world, "boat")) == 2

    await db["turns"].delete_one({"seq": 1})

    assert await turns(world, "boat") == ["My boat is blue."]
