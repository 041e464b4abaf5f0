"""A server with services of its own: soon up, hard to kill, and its conversations can be carried elsewhere."""

import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.embedded.serving import processes_of, programs_of, serving, someone, tertulia
from tests.support.client import User
from tests.support.observe import eventually
from tests.support.sse import begun, saying, words

SLOW = "/slow 1 tell me something long"
QUICK = {"lease_seconds": 1.5, "sweep_seconds": 0.3, "drain_seconds": 0}

Move = tuple[Path, Path, Path]


@pytest.fixture
def move(data_dir: Path) -> Move:
    """Two data directories, and the file that goes from the one to the other."""
    data_dir.mkdir()
    return data_dir / "here", data_dir / "there", data_dir / "backup"


def ready_after(data_dir: Path) -> float:
    """The seconds from the start of the process until it says that it can serve."""
    began = time.monotonic()
    with serving(data_dir) as server:
        while httpx.get(f"{server.url}/readyz", trust_env=False).status_code != 200:
            time.sleep(0.01)
        return time.monotonic() - began


def test_a_server_is_ready_within_ten_seconds_the_first_time_and_within_three_after_that(data_dir: Path):
    assert ready_after(data_dir) < 10
    assert min(ready_after(data_dir) for _ in range(3)) < 3  # the machine may be busy with other tests
    assert processes_of(data_dir) == []


async def test_a_message_is_answered_once_though_the_server_is_killed_in_mid_answer(data_dir: Path):
    with serving(data_dir, **QUICK) as doomed:
        async with someone(doomed, data_dir) as ann, ann.socket() as socket:
            conversation = await begun(ann)
            await socket.subscribe((await ann.conversation(conversation))["conversation"]["sessionId"])
            sent = await ann.send(SLOW, conversation)
            await socket.until("text_delta")
            doomed.kill()
    assert programs_of(data_dir) == {"postgres", "valkey-server"}
    with serving(data_dir, **QUICK) as server:
        async with someone(server, data_dir) as ann:
            state = await ann.answered(sent)
            assert [(turn["status"], turn["attempt"]) for turn in state["turns"]] == [("done", 2)]
            after = await ann.ask("and now?", conversation)
            assert after["reply"]["content"].endswith("I was shown 2 earlier messages.")
            said = (await ann.conversation(conversation))["messages"]
        server.signal(signal.SIGTERM)
        assert server.ended() == 0
    assert [message["role"] for message in said] == ["user", "assistant"] * 2
    assert said[1]["content"] == state["reply"]["content"]
    assert processes_of(data_dir) == []


async def test_a_message_that_is_sent_again_after_each_of_two_kills_is_stored_and_answered_once(
    data_dir: Path,
):
    conversation = ""
    for _ in range(2):
        with serving(data_dir, **QUICK) as doomed:
            async with someone(doomed, data_dir) as ann:
                conversation = conversation or await begun(ann)
                async with saying(ann, conversation, SLOW, key="once") as stream:
                    await stream.heard("text_delta")
                    doomed.kill()
    with serving(data_dir, **QUICK) as server:
        async with someone(server, data_dir) as ann:
            async with saying(ann, conversation, SLOW, key="once") as stream:
                events = await stream.over()
            said = (await ann.conversation(conversation))["messages"]
    assert (events[-1].type, events[-1].inner["status"], events[-1].data["attempt"]) == (
        "turn_end",
        "done",
        3,
    )
    assert [message["role"] for message in said] == ["user", "assistant"]
    assert words(events) == said[1]["content"]
    assert processes_of(data_dir) == []


async def talked(ann: User) -> str:
    """A conversation with three answers, one of which has structured data."""
    sent = await ann.ask("Which way to the sea?", "trip")
    await ann.ask('/tool present {"type": "repo_list", "data": {"items": ["你好", 2]}}', "trip")
    await ann.ask("谢谢", "trip")
    return sent["conversation_id"]


async def everything(ann: User, conversation: str) -> list[Any]:
    """All that the faces tell of a user's conversations."""
    listed = (await ann.http.get("/api/conversations")).json()
    return [listed, await ann.conversation(conversation)]


async def test_conversations_read_the_same_where_a_backup_of_the_running_server_is_restored(move: Move):
    here, there, file = move
    with serving(here) as server:
        async with someone(server, here) as ann:
            conversation = await talked(ann)
            before = await everything(ann, conversation)
            tertulia("backup", file, "--data-dir", here)
            await ann.ask("This comes too late", "trip")
    tertulia("restore", file, "--data-dir", there)
    with serving(there) as server:
        async with someone(server, there) as ann, someone(server, here) as stranger:
            assert await everything(ann, conversation) == before
            assert (await stranger.http.get("/api/conversations")).status_code == 401
            after = await ann.ask("And now?", "trip")
    assert after["conversation_id"] == conversation
    assert after["reply"]["content"].endswith("I was shown 8 earlier messages.")  # two of them about the tool
    assert processes_of(here.parent) == []


async def test_what_was_being_answered_during_the_backup_is_answered_where_it_is_restored(move: Move):
    here, there, file = move
    with serving(here, **QUICK) as server:
        async with someone(server, here) as ann:
            running = await ann.send("/slow 3 tell me something long", "trip")
            waiting = await ann.send("And then?", "trip")
            await eventually(lambda: _runs(ann, running))
            tertulia("backup", file, "--data-dir", here)
            assert await _runs(ann, running)
    tertulia("restore", file, "--data-dir", there)
    with serving(there, **QUICK) as server:
        async with someone(server, there) as ann:
            states = [await ann.answered(sent) for sent in (running, waiting)]
            said = (await ann.conversation(running["conversation_id"]))["messages"]
    assert [(s["status"], len(s["turns"]), s["turns"][0]["attempt"]) for s in states] == [
        ("done", 1, 2),
        ("done", 1, 1),
    ]
    assert [message["role"] for message in said] == ["user", "user", "assistant", "assistant"]
    assert [said[2]["content"], said[3]["content"]] == [state["reply"]["content"] for state in states]


async def _runs(user: User, sent: dict[str, Any]) -> bool:
    return (await user.state(sent["message_id"]))["status"] == "running"
