"""Whose conversation a call belongs to."""

import logging

import pytest

import afterturn
from afterturn import Conversation
from tests.scripted_endpoint import ScriptedEndpoint, says
from tests.sdk.talking import MARA, Server, client_of, complete, flushed, said, stored, user


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
    endpoint.always(says("Hello."))
    bare = client_of(endpoint)
    with flushed(server) as recorder, afterturn.conversation(**MARA):
        twin = recorder.recorded(bare)
        complete(twin, [user("1")])
        del twin
        complete(bare, [user("2")])
        twin = recorder.recorded(bare)
        del bare
        complete(twin, [user("3")])
        twin.close()

    assert [content for role, content in said(server) if role == "user"] == ["1", "3"]
