"""Whose conversation a call belongs to."""

import gc
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from openai import OpenAI

import afterturn
from afterturn import Conversation
from tests.scripted_endpoint import ScriptedEndpoint, held, says
from tests.sdk.talking import (
    MARA,
    Server,
    chat_chunks,
    client_of,
    complete,
    flushed,
    said,
    stored,
    streams,
    user,
)


def test_a_call_of_nobody_is_not_recorded_and_that_is_said_once(
    server: Server, endpoint: ScriptedEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.always(says("Hello."))
    bare = client_of(endpoint)
    with flushed(server) as recorder:
        client = recorder.recorded(bare)
        complete(client, [user("Hi.")])
        for half in ({"user_id": "mara"}, {"session_id": "monday", "user_id": "  "}):
            with afterturn.conversation(**half):
                complete(client, [user("Hi.")])
        assert recorder.counts.unnamed_calls == 3
    bare.close()

    assert said(server) == []
    logged = [record for record in caplog.records if record.name == "afterturn"]
    assert [record.levelno for record in logged] == [logging.WARNING]
    assert "session_id" in caplog.text


def test_what_a_client_is_bound_to_goes_before_what_is_said_around_it(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """Field by field; a client that is bound anew is bound to the new only, and recorded once."""
    endpoint.always(says("Hello."))
    bare = client_of(endpoint)
    with flushed(server) as recorder:
        bound = recorder.recorded(bare, conversation=Conversation(user_id="bo", agent_id="desk"))
        rebound = recorder.recorded(bound, conversation=Conversation(user_id="cy"))
        with afterturn.conversation(**MARA):
            complete(bound, [user("Hi.")])
            complete(bound.with_options(timeout=5), [user("Hi again.")])
            with afterturn.conversation(session_id="tuesday"):
                complete(rebound, [user("Hi.")])
    bare.close()

    assert [turn["identity"]["user_id"] for turn in stored(server)] == ["bo"] * 4
    assert {turn["identity"]["agent_id"] for turn in stored(server)} == {"desk"}
    assert [turn["identity"]["user_id"] for turn in stored(server, "tuesday")] == ["cy"] * 2
    assert recorder.counts.recorded == 6


def test_only_a_vendors_client_can_be_recorded(server: Server) -> None:
    with flushed(server) as recorder, pytest.raises(TypeError, match="OpenAI or Anthropic"):
        recorder.recorded("no client")


def test_the_vendors_client_outlives_its_twin_and_the_twin_its_client(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """They share connections, and neither closes them while the other is in use."""

    def read(client: OpenAI) -> list[object]:
        return list(complete(client, [user("2")], stream=True))

    gate = threading.Event()
    reply = streams(*chat_chunks("a", "b"), "[DONE]")
    endpoint.script(says("Hello."), held(reply, gate), says("Hello."))
    bare = client_of(endpoint)
    with flushed(server) as recorder, afterturn.conversation(**MARA):
        twin = recorder.recorded(bare)
        complete(twin, [user("1")])
        with ThreadPoolExecutor(1) as pool:
            stream = pool.submit(read, bare)
            endpoint.wait_for(2)
            del twin
            gc.collect()
            gate.set()
            assert len(stream.result()) == 4
        twin = recorder.recorded(bare)
        del bare
        gc.collect()
        complete(twin, [user("3")])
        twin.close()

    assert [content for role, content in said(server) if role == "user"] == ["1", "3"]
