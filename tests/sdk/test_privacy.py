"""What may leave the process: only what the hook leaves, never what memory itself said."""

import logging
from pathlib import Path

import pytest

import afterturn
from afterturn import Recorder, Route
from afterturn.recalled import without_recalled
from afterturn.wires.exchange import objects
from pipeline.extracting.recalled import CUT
from pipeline.extracting.recalled import without_recalled as as_the_server_cuts
from tests.scripted_endpoint import ScriptedEndpoint, calls_tool, says
from tests.sdk.talking import (
    MARA,
    Server,
    Talk,
    assistant,
    client_of,
    complete,
    contents,
    flushed,
    said,
    taking,
    user,
)

SECRET = "hunter2"


def without_secret(text: str) -> str | None:
    return None if "off the record" in text else text.replace(SECRET, "[password]")


def test_what_the_hook_takes_out_is_nowhere_and_the_model_still_gets_it(
    endpoint: ScriptedEndpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In text and in arguments of tools, on the wire, on disk and in logs."""
    # What the vendor's client logs is its own affair.
    for name in ("afterturn", "agent_engine_sdk_memory", "httpx", "httpcore"):
        caplog.set_level(logging.DEBUG, logger=name)
    talk: Talk = [user(f"My password is {SECRET}."), assistant("Noted."), user("off the record: x")]
    endpoint.script(says("Noted."), calls_tool({"password": SECRET}, tool_name="log_in"))
    bare = client_of(endpoint)
    disk = tmp_path / "waiting"
    with (
        ScriptedEndpoint() as sent,
        Recorder(taking(sent), redact=without_secret, disk=disk) as recorder,
        afterturn.conversation(**MARA),
    ):
        client = recorder.recorded(bare)
        complete(client, talk[:1])
        complete(client, talk)
        assert recorder.flush()
        assert recorder.counts.left_out == 1
        on_disk = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        bodies = [request.json for request in sent.requests]
    bare.close()

    assert SECRET in endpoint.requests[1].body.decode()
    assert [body["content"] for body in bodies] == ["My password is [password].", "Noted.", ""]
    assert bodies[2]["tool_calls"][0]["arguments"] == '{"password": "[password]"}'
    everything = f"{bodies}{caplog.text}{on_disk}"
    assert SECRET not in everything
    assert "off the record" not in everything


def test_a_key_tells_nothing_of_what_was_taken_out(endpoint: ScriptedEndpoint) -> None:
    """Whoever knows what was redacted around it can't try secrets against it."""
    endpoint.always(says("Noted."))
    bare = client_of(endpoint)
    keys: list[list[str]] = []
    for secret in (SECRET, f"{SECRET} {SECRET}"):
        with (
            ScriptedEndpoint() as sent,
            Recorder(taking(sent), redact=lambda text: text.replace(SECRET, "").strip()) as ours,
            afterturn.conversation(**MARA),
        ):
            complete(ours.recorded(bare), [user(f"Mine: {secret}")])
            assert ours.flush()
            keys.append([request.json["idempotency_key"] for request in sent.requests])
    bare.close()

    assert keys[0] == keys[1]


@pytest.mark.parametrize("wrong", ["raises", "returns a number"])
def test_what_a_failing_hook_saw_is_not_sent_and_its_words_are_not_logged(
    endpoint: ScriptedEndpoint, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    def failing(text: str) -> str:
        if SECRET in text:
            if wrong == "raises":
                raise ValueError(text)
            return 5  # pyright: ignore[reportReturnType] (it is what this test is about)
        return text

    endpoint.always(says("Noted."))
    bare = client_of(endpoint)
    with (
        ScriptedEndpoint() as sent,
        Recorder(taking(sent), redact=failing) as recorder,
        afterturn.conversation(**MARA),
    ):
        answer = complete(recorder.recorded(bare), [user(f"It's {SECRET}.")])
        assert recorder.flush()
        assert contents(sent) == ["Noted."]
    bare.close()

    assert answer.choices[0].message.content == "Noted."
    assert "hook failed" in caplog.text
    assert SECRET not in caplog.text


def test_the_hook_sees_a_turn_once_though_every_request_says_it_again(
    endpoint: ScriptedEndpoint,
) -> None:
    endpoint.respond_with(lambda request: says(f"Answer {len(request['messages'])}."))
    bare = client_of(endpoint)
    seen: list[str] = []

    def seeing(text: str) -> str:
        seen.append(text)
        return text

    talk: Talk = []
    with (
        ScriptedEndpoint() as sent,
        Recorder(taking(sent), redact=seeing) as recorder,
        afterturn.conversation(**MARA),
    ):
        client = recorder.recorded(bare)
        for number in range(5):
            talk.append(user(f"Question {number}?"))
            talk.append(assistant(complete(client, talk).choices[0].message.content))
        assert recorder.flush()
    bare.close()

    assert seen == [turn["content"] for turn in talk]


def test_recalled_memory_is_not_recorded_again_wherever_it_stands(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    """And a context that differs with every request makes no other turn of the same words."""
    endpoint.respond_with(lambda request: says(f"Answer {len(request['messages'])}."))
    bare = client_of(endpoint)
    memory = server.memory()
    try:
        memory.save_semantic(text="Likes tea.", label="drink", user_id="mara")
        context = memory.build_context(query="tea?", user_id="mara", enabled_sources={"semantic"})
    finally:
        memory.close()
    block = objects(context.formatted_context)[0]
    assert "Likes tea." in block["content"]
    with flushed(server) as recorder, afterturn.conversation(**MARA):
        client = recorder.recorded(bare)
        complete(client, [block, user("First.")])
        both = user(f"{block['content']}\n\nSecond.")
        complete(client, [user("First."), assistant("Answer 2."), both])
        complete(client, [user("First."), assistant("Answer 2."), user("Second.")])
    bare.close()

    assert said(server) == [
        ("user", "First."),
        ("assistant", "Answer 2."),
        ("user", "Second."),
        ("assistant", "Answer 3."),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "no block",
        "a <afterturn-memory x=1>b</afterturn-memory> c",
        "<AFTERTURN-MEMORY>b<afterturn-memory>c</afterturn-memory>d</afterturn-memory>e",
        "a<afterturn-memory>never ends",
        "a</afterturn-memory>b<afterturn-memory-not>c",
    ],
)
def test_the_block_is_what_the_server_takes_for_it(text: str) -> None:
    ours = without_recalled(text)
    theirs = as_the_server_cuts(text)

    assert ours == (theirs.replace(CUT, "").strip() if theirs != text else text)


def test_calls_are_recorded_or_not_as_is_said_around_them(
    server: Server, endpoint: ScriptedEndpoint
) -> None:
    endpoint.respond_with(lambda request: says(f"Re: {request['messages'][-1]['content']}"))
    bare = client_of(endpoint)
    with flushed(server) as recorder, afterturn.conversation(**MARA):
        out = recorder.recorded(bare)
        into = recorder.recorded(bare, by_default=False)
        elsewhere = recorder.recorded(bare, routes=[Route.MESSAGES])
        complete(out, [user("1")])
        with afterturn.recording(False):
            complete(out, [user("2")])
            with afterturn.recording(True):
                complete(out, [user("3")])
        complete(into, [user("4")])
        with afterturn.recording(True):
            complete(into, [user("5")])
            complete(elsewhere, [user("6")])
            complete(bare, [user("7")])
    bare.close()

    assert [content for role, content in said(server) if role == "user"] == ["1", "3", "5"]
