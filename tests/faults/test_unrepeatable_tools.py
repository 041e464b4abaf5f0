"""A tool that must not be called twice: after a crash in its call the outcome is unknown, and the model is told so."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.promises import broken, words_of_last_attempt
from tests.faults.world import Talk, World, died, halted, until

CHARGED = "The tool charge answered: Charged."
UNKNOWN = (
    "The tool charge answered: The outcome of this call is unknown: the server stopped while it ran."
    " It may have happened. Do not repeat it; tell the person."
)
STEPS = """
SELECT content_type, content::text FROM messages
 WHERE turn_id = $1 AND content_type LIKE 'tool%' ORDER BY seq
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the tool writes down the ids of the calls that it ran."""
    written = tmp_path / "charges"
    written.touch()
    return written


def charges(file: Path) -> list[str]:
    """The ids of the calls that the tool ran."""
    return file.read_text().splitlines()


def wish(file: Path, calls: int = 1) -> str:
    """What makes the demo model call the tool so many times at once."""
    return "\n".join([f"/tool charge {json.dumps({'file': str(file)})}"] * calls)


async def steps(world: World, talk: Talk) -> list[tuple[str, dict[str, Any]]]:
    """The calls of the first message's turn and their results, in the order of their record."""
    rows = await world.sql(STEPS, talk.sent[0]["turn_id"])
    return [(row[0], json.loads(row[1])) for row in rows]


async def killed(world: World, talk: Talk, text: str, where: str, how: str = "charging") -> None:
    """A server begins to answer this and is killed there; another one goes on until the promise holds."""
    async with world.patched(how, f"{where}=kill") as doomed:
        await talk.send(text)
        await died(doomed)
    async with world.patched(how):
        assert await broken(talk) == []


async def test_a_call_that_nothing_interrupts_is_made_once(world: World, file: Path) -> None:
    async with world.talk() as talk, world.patched("charging"):
        sent = await talk.send(wish(file))
        assert await broken(talk) == []
        reply = (await talk.user.state(sent["message_id"]))["reply"]
    assert (reply["content"], reply["actions"]) == (CHARGED, [{"type": "charge"}])
    assert len(charges(file)) == 1


@pytest.mark.parametrize(("where", "runs"), [("worker.tool_called", 0), ("worker.tool_returned", 1)])
async def test_after_a_crash_in_its_call_the_outcome_is_unknown_and_it_is_not_called_again(
    world: World, file: Path, where: str, runs: int
) -> None:
    async with world.talk() as talk:
        await killed(world, talk, wish(file), where)
        state = await talk.user.state(talk.sent[0]["message_id"])
        words_of_last_attempt(talk, talk.sent[0], UNKNOWN)
        results = [event["data"] for event in talk.listener.frames if event["type"] == "tool_result"]
        (called, call), (returned, result) = await steps(world, talk)
    assert (state["status"], state["turns"][0]["attempt"]) == ("done", 2)
    assert (state["reply"]["content"], state["reply"]["actions"]) == (UNKNOWN, None)
    assert (called, call["name"], returned, result["isError"]) == ("tool_call", "charge", "tool_result", True)
    assert [(each["toolCallId"], each["isError"]) for each in results] == [(call["id"], True)]
    assert charges(file) == [call["id"]] * runs


@pytest.mark.parametrize(("where", "runs"), [("worker.tool_called", 0), ("worker.tool_returned", 1)])
async def test_after_a_crash_in_the_first_of_three_calls_none_is_made_twice(
    world: World, file: Path, where: str, runs: int
) -> None:
    async with world.talk() as talk:
        await killed(world, talk, wish(file, 3), where)
        ids = [content["id"] for kind, content in await steps(world, talk) if kind == "tool_call"]
        reply = (await talk.user.state(talk.sent[0]["message_id"]))["reply"]
        assert reply["content"].splitlines()[0] == UNKNOWN
    assert charges(file) == ids[:runs]


async def test_a_result_that_was_recorded_before_the_crash_is_known_and_the_call_not_made_again(
    world: World, file: Path
) -> None:
    async with world.talk() as talk:
        await killed(world, talk, wish(file), "worker.before_commit")
        state = await talk.user.state(talk.sent[0]["message_id"])
    assert (state["reply"]["content"], state["reply"]["actions"]) == (CHARGED, [{"type": "charge"}])
    assert state["turns"][0]["attempt"] == 2
    assert len(charges(file)) == 1


async def test_a_server_that_was_paused_before_the_call_makes_it_once_and_changes_nothing_any_more(
    world: World, file: Path
) -> None:
    async with world.talk() as talk, world.patched("charging", "worker.tool_called=stop") as paused:
        sent = await talk.send(wish(file))
        await halted(paused)
        async with world.patched("charging"):
            await talk.ended(sent)
            assert charges(file) == []
            paused.signal(signal.SIGCONT)
            await until(lambda: len(charges(file)) == 1)
            await talk.send("and then?")
            assert await broken(talk) == []
        (_, call), (_, result) = await steps(world, talk)
        assert (await talk.user.state(sent["message_id"]))["reply"]["content"] == UNKNOWN
    assert (charges(file), result["isError"]) == ([call["id"]], True)


async def test_the_same_tool_is_called_again_where_it_says_that_it_is_repeatable(
    world: World, file: Path
) -> None:
    """The control: the file does count, and nothing else keeps the second call away."""
    async with world.talk() as talk:
        await killed(world, talk, wish(file), "worker.tool_returned", "charging-again")
        assert (await talk.user.state(talk.sent[0]["message_id"]))["reply"]["content"] == CHARGED
        ((_, call), _) = await steps(world, talk)
    assert charges(file) == [call["id"]] * 2
