"""The way to the memory server: in order, once, whatever becomes of it, and never in the way."""

import asyncio
import os
import random
import time
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest
from agent_engine_sdk_memory import Memory
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI

import afterturn
from afterturn import Bound, Recorder
from afterturn.buffering import Buffer, Kept
from afterturn.parcels import parcel
from afterturn.scopes import Conversation
from afterturn.sending import MAXIMUM_SECONDS, backoff
from tests.faults.proxy import proxy_to
from tests.scripted_endpoint import ScriptedEndpoint, delayed, hangs, says, status
from tests.sdk.talking import (
    MARA,
    Server,
    Talk,
    assistant,
    client_of,
    complete,
    contents,
    said,
    taken,
    taking,
    user,
)


def keys(endpoint: ScriptedEndpoint) -> list[str]:
    return [str(request.json["idempotency_key"]) for request in endpoint.requests]


def converse(recorder: Recorder, model: ScriptedEndpoint, talk: Talk, *, rounds: int = 1) -> Talk:
    """Go on with a conversation, and return it."""
    model.respond_with(lambda request: says(f"Re: {request['messages'][-1]['content']}"))
    bare = client_of(model)
    client = recorder.recorded(bare)
    with afterturn.conversation(**MARA):
        for _ in range(rounds):
            talk.append(user(f"Question {len(talk)}?"))
            talk.append(assistant(complete(client, talk).choices[0].message.content))
    bare.close()
    return talk


def texts(talk: Talk) -> list[str]:
    return [turn["content"] for turn in talk]


def test_each_turn_goes_over_the_wire_once_and_in_order(endpoint: ScriptedEndpoint) -> None:
    """Compared at the socket: nothing is left to the server to sort out."""
    with ScriptedEndpoint() as sent, Recorder(taking(sent)) as recorder:
        talk = converse(recorder, endpoint, [], rounds=6)
        assert recorder.flush()

        assert contents(sent) == texts(talk)
        assert len(set(keys(sent))) == len(talk)


def test_a_process_that_begins_in_the_middle_gives_the_same_keys(
    endpoint: ScriptedEndpoint,
) -> None:
    with ScriptedEndpoint() as sent:
        with Recorder(taking(sent)) as first:
            talk = converse(first, endpoint, [], rounds=3)
        with Recorder(taking(sent)) as second:
            converse(second, endpoint, talk)
        first_keys, second_keys = keys(sent)[:6], keys(sent)[6:]

        assert second_keys[:6] == first_keys
        assert len(set(second_keys)) == 8


async def test_a_memory_server_gone_under_load_is_seen_by_nobody_and_loses_nothing(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """Gone, losing answers and hanging by turns: all turns arrive once, in order."""
    endpoint.respond_with(lambda request: says(f"Re: {request['messages'][-1]['content']}"))
    bare = AsyncOpenAI(base_url=endpoint.url, api_key="k", max_retries=0)
    slowest = 0.0

    async def talk_as(name: str, rounds: int) -> None:
        nonlocal slowest
        talk = talks.setdefault(name, [])
        with afterturn.conversation(user_id="mara", session_id=name):
            for _ in range(rounds):
                talk.append(user(f"{name} {len(talk)}"))
                began = time.monotonic()
                answer = await client.chat.completions.create(model="m", messages=talk)
                slowest = max(slowest, time.monotonic() - began)
                talk.append(assistant(answer.choices[0].message.content or ""))

    async def talk_all(rounds: int) -> None:
        await asyncio.gather(*(talk_as(f"talk {number}", rounds) for number in range(6)))

    talks: dict[str, Talk] = {}
    port = int(server.url.rpartition(":")[2])
    async with proxy_to(port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        recorder = Recorder(lambda: Memory(base_url=url, project_id=server.project))
        client = recorder.recorded(bare)
        await talk_all(2)
        proxy.refuse()
        proxy.cut()
        await talk_all(3)
        assert recorder.counts.waiting > 0
        proxy.resume()
        proxy.lose_answers(every=4)
        await talk_all(2)
        proxy.lose_answers(every=None)
        is_flushed = await asyncio.to_thread(recorder.flush, 30)
        await asyncio.to_thread(recorder.close, 1)
    await bare.close()

    assert is_flushed
    for name, talk in talks.items():
        assert said(server, name) == [(turn["role"], turn["content"]) for turn in talk]
    assert slowest < 5


def test_a_refused_turn_is_left_out_and_what_follows_goes_on(
    endpoint: ScriptedEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedEndpoint() as sent, Recorder(taking(sent)) as recorder:
        sent.script(taken(), status(422), taken(), status(413))
        talk = converse(recorder, endpoint, [], rounds=3)
        assert recorder.flush()

        assert contents(sent) == texts(talk)
        assert (recorder.counts.recorded, recorder.counts.refused) == (4, 2)
    assert "422" in caplog.text
    assert "Question" not in caplog.text


def test_a_turn_whose_key_is_known_with_other_times_is_recorded(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """The first process knew the model and the times; the second has it from the history."""
    with Recorder(server.memory) as first:
        talk = converse(first, endpoint, [], rounds=2)
    with Recorder(server.memory) as second:
        converse(second, endpoint, talk)
        assert second.flush()
        assert second.counts.recorded == 6
        assert second.counts.refused == 0

    assert [content for _, content in said(server)] == texts(talk)


def test_what_has_no_room_is_counted_and_said_again_with_the_next_request(
    endpoint: ScriptedEndpoint,
) -> None:
    """In order, and only what the memory server does not know is new to it."""
    with ScriptedEndpoint() as sent:
        connect = taking(sent)
        sent.always(status(500))
        with Recorder(connect, bound=Bound(turns=3)) as recorder:
            talk = converse(recorder, endpoint, [], rounds=4)
            assert not recorder.flush(0.2)
            assert recorder.counts.waiting <= 3
            assert recorder.counts.dropped > 0
            sent.clear()
            taking(sent)
            assert recorder.flush(20)
            converse(recorder, endpoint, talk)
            assert recorder.flush(20)
        first_said = dict(reversed(list(zip(keys(sent), contents(sent), strict=True))))

        assert sorted(first_said.values()) == sorted(texts(talk))
        assert list(dict(zip(keys(sent), contents(sent), strict=True)).values()) == texts(talk)


def test_a_refused_token_is_followed_by_another(endpoint: ScriptedEndpoint) -> None:
    """Tokens are good for an hour; the function that connects is asked for the next one."""
    with ScriptedEndpoint() as sent:
        taking(sent)
        sent.script(status(401))
        tokens = iter(("old", "new"))
        recorder = Recorder(lambda: Memory(base_url=sent.url, service_account_token=next(tokens)))
        with recorder:
            talk = converse(recorder, endpoint, [])
            assert recorder.flush()

        assert contents(sent) == [texts(talk)[0], *texts(talk)]
        used = [request.headers["authorization"] for request in sent.requests]
        assert used == ["Bearer old", "Bearer new", "Bearer new"]


def test_a_memory_server_that_hangs_holds_up_neither_flush_nor_close(
    endpoint: ScriptedEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedEndpoint() as sent:
        sent.always(hangs())
        recorder = Recorder(lambda: Memory(base_url=sent.url))
        converse(recorder, endpoint, [])
        sent.wait_for(1)
        began = time.monotonic()
        assert not recorder.flush(0.2)
        assert not recorder.close(0.2)
        assert time.monotonic() - began < 3
    assert "2 turns that were not recorded" in caplog.text


def test_halves_of_characters_are_mended_and_the_rest_is_kept_to_the_byte(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.always(says("half \ud83d emoji 👩‍👩‍👧"))
    bare = client_of(endpoint)
    with Recorder(server.memory) as recorder, afterturn.conversation(**MARA):
        complete(recorder.recorded(bare), [user("Hi.\u0000 می‌خواهم")])
        assert recorder.flush()
    bare.close()

    assert said(server) == [
        ("user", "Hi.\u0000 می‌خواهم"),
        ("assistant", "half \ufffd emoji 👩‍👩‍👧"),
    ]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_records_by_itself_and_leaves_the_parents_turns_to_the_parent(
    endpoint: ScriptedEndpoint,
) -> None:
    with ScriptedEndpoint() as sent, Recorder(taking(sent)) as recorder:
        sent.script(delayed(taken(), timedelta(seconds=1)))
        parents = converse(recorder, endpoint, [])
        sent.wait_for(1)
        child = os.fork()
        if child == 0:
            is_told = False
            try:
                told = converse(recorder, endpoint, [*parents])
                is_told = recorder.flush(20) and recorder.counts.recorded == len(told)
            finally:
                os._exit(0 if is_told else 1)
        _, ended = os.waitpid(child, 0)
        assert ended == 0
        assert recorder.flush(20)
        assert recorder.counts.recorded == len(parents)

        # The child says the whole history again, and the server knows what the parent said.
        counts = Counter(contents(sent))
        assert [counts[text] for text in texts(parents)] == [2, 2]
        assert len(set(keys(sent))) == len(counts) == 4


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_never_longer_than_the_longest_nor_shorter_than_half_of_it(
    failures: int, dice: float
) -> None:
    wait = backoff(failures, lambda: dice)

    assert 0.25 <= wait <= MAXIMUM_SECONDS
    assert backoff(failures + 1, lambda: dice) >= wait


@given(st.lists(st.integers(0, 2), max_size=30), st.integers())
def test_turns_of_a_conversation_are_taken_in_order_whoever_fails_in_between(
    turns: list[int], seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311 (a schedule, no secret)
    buffer = Buffer(Bound())
    kept_turns = [
        Kept(parcel(Conversation(user_id="u", session_id=str(session)), {"content": str(number)}))
        for number, session in enumerate(turns)
    ]
    waiting = list(kept_turns)
    added: list[Kept] = []
    held: list[Kept] = []
    taken_turns: dict[str, list[int]] = {}
    while waiting or added:
        choice = dice.random()
        busy = [kept.parcel.conversation for kept in held]
        if waiting and choice < 0.3:
            added.append(waiting.pop(0))
            buffer.add([added[-1]])
        elif held and choice < 0.6:
            kept = held.pop(dice.randrange(len(held)))
            if dice.random() < 0.3:
                buffer.failed(kept, delay=0)
                continue
            buffer.done(kept)
            added.remove(kept)
            session = str(kept.parcel.conversation.session_id)
            taken_turns.setdefault(session, []).append(int(kept.parcel.turn["content"]))
        elif any(kept.parcel.conversation not in busy for kept in added):
            kept = buffer.take(1)
            assert kept is not None
            assert kept.parcel.conversation not in busy
            held.append(kept)

    assert sum(map(len, taken_turns.values())) == len(kept_turns)
    assert all(a < b for numbers in taken_turns.values() for a, b in pairwise(numbers))
    assert buffer.turns == 0
