"""What waits on disk outlives its process, and nothing keeps a process alive."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from pathlib import Path

import pytest
from agent_engine_sdk_memory import Memory

import afterturn
from afterturn import Recorder
from tests.scripted_endpoint import ScriptedEndpoint, says
from tests.sdk.talking import MARA, Server, client_of, complete, contents, said, taking, user

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"
TALKING = """
    import sys, time
    from pathlib import Path
    from agent_engine_sdk_memory import Memory
    from openai import OpenAI
    import afterturn

    model, memory, disk = sys.argv[1:]
    recorder = afterturn.Recorder(lambda: Memory(base_url=memory), disk=Path(disk))
    client = recorder.recorded(OpenAI(base_url=model, api_key="k", max_retries=0))
    talk = []
    with afterturn.conversation(session_id="monday", user_id="mara"):
        for number in range(3):
            talk.append({"role": "user", "content": f"Question {number}?"})
            answer = client.chat.completions.create(model="m", messages=talk)
            talk.append({"role": "assistant", "content": answer.choices[0].message.content})
"""


def running(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    environment = {"PYTHONPATH": str(ROOT / "sdk" / "src"), "PATH": os.environ["PATH"]}
    return subprocess.Popen(  # noqa: S603 (our own script)
        command, text=True, stdout=subprocess.PIPE, env=environment
    )


def on_disk(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("select count(*) from waiting").fetchone()[0])


def test_what_a_killed_process_left_on_disk_is_sent_by_the_next_once_in_order(
    server: Server, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.respond_with(lambda request: says(f"Answer {len(request['messages'])}."))
    disk = tmp_path / "left" / "waiting"
    script = TALKING + "    recorder.flush(0.5); print('told', flush=True); time.sleep(60)\n"
    process = running(script, endpoint.url, NOWHERE, disk)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "told\n"
        process.send_signal(signal.SIGKILL)
    assert on_disk(disk) == 6
    with ScriptedEndpoint() as sent, Recorder(taking(sent), disk=disk) as recorder:
        assert recorder.flush(20)
        assert contents(sent) == [
            *("Question 0?", "Answer 1.", "Question 1?", "Answer 3.", "Question 2?", "Answer 5.")
        ]
    assert on_disk(disk) == 0
    assert disk.stat().st_mode & 0o077 == 0


def test_two_processes_may_share_the_file_and_the_server_has_each_turn_once(
    server: Server, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    endpoint.respond_with(lambda request: says(f"Re: {request['messages'][-1]['content']}"))
    disk = tmp_path / "waiting"
    bare = client_of(endpoint)
    gone = Recorder(lambda: Memory(base_url=NOWHERE), disk=disk)
    with afterturn.conversation(**MARA):
        complete(gone.recorded(bare), [user("Hi.")])
    assert not gone.flush(0.3)
    with (
        Recorder(server.memory, disk=disk) as one,
        Recorder(server.memory, disk=disk) as other,
    ):
        assert one.flush(20)
        assert other.flush(20)
    gone.close(0.1)
    bare.close()

    assert said(server) == [("user", "Hi."), ("assistant", "Re: Hi.")]
    assert on_disk(disk) == 0


def test_a_damaged_file_is_put_aside_and_recording_goes_on(
    endpoint: ScriptedEndpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = tmp_path / "waiting"
    disk.write_bytes(b"no database" * 1_000)
    endpoint.always(says("Hello."))
    bare = client_of(endpoint)
    with ScriptedEndpoint() as sent, Recorder(taking(sent), disk=disk) as recorder:
        with afterturn.conversation(**MARA):
            complete(recorder.recorded(bare), [user("Hi.")])
        assert recorder.flush()
        assert contents(sent) == ["Hi.", "Hello."]
    bare.close()

    assert (tmp_path / "waiting.damaged").read_bytes().startswith(b"no database")
    assert "waiting.damaged" in caplog.text


def test_a_process_that_ends_sends_what_it_has_and_waits_for_nobody_for_long(
    endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    """Nothing was closed or flushed: the one memory server takes turns, the other is gone."""
    endpoint.respond_with(lambda request: says(f"Answer {len(request['messages'])}."))
    script = TALKING + "    print('told', flush=True)\n"
    with ScriptedEndpoint() as sent:
        connect = taking(sent)
        connect().close()
        processes = [
            running(script, endpoint.url, url, tmp_path / str(number))
            for number, url in enumerate((sent.url, NOWHERE))
        ]
        waited: list[float] = []
        for process in processes:
            assert process.stdout is not None
            with process:
                assert process.stdout.readline() == "told\n"
                told = time.monotonic()
                assert process.wait(20) == 0
                waited.append(time.monotonic() - told)
        assert len(contents(sent)) == 6

    assert max(waited) < 5
    assert on_disk(tmp_path / "1") == 6
