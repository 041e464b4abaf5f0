"""Workers and servers that die or pause at the worst moments."""

import asyncio
import signal

import httpx
import pytest

from tests.faults.promises import broken, words_of_last_attempt
from tests.faults.world import Talk, World, died, halted, until
from tests.support.client import User

SLOW = "/slow 0.3 tell me something"


async def test_another_worker_answers_what_a_killed_one_had_begun(world: World) -> None:
    async with world.talk() as talk:
        async with world.worker("worker.mid_turn=kill") as doomed:
            first, second = await talk.send(SLOW), await talk.send("and then?")
            await died(doomed)
        seen = await talk.listener.heard("text_delta", turnId=first["turn_id"])
        async with world.worker(), talk.again(seen["cursor"]) as late:
            assert await broken(talk, late) == []
        state = await talk.user.state(first["message_id"])
        assert state["turns"][0]["attempt"] == 2
        assert [e["attempt"] for e in talk.listener.of(first["turn_id"]) if e["type"] == "message_start"] == [
            1,
            2,
        ]
        words_of_last_attempt(talk, first, state["reply"]["content"])
        assert "no earlier messages" in state["reply"]["content"]
        assert "2 earlier messages" in (await talk.user.state(second["message_id"]))["reply"]["content"]


async def test_a_message_that_was_committed_is_answered_though_the_server_died_before_saying_so(
    world: World,
) -> None:
    async with world.talk() as talk, world.server("api.after_commit=kill") as doomed:
        async with User(doomed.url, "ann") as user:
            with pytest.raises(httpx.TransportError):
                await user.post("hello", talk.conversation, key="once")
        await died(doomed)
        stored = await world.sql(
            "SELECT id::text FROM messages WHERE conversation_id = $1", talk.conversation
        )
        assert len(stored) == 1
        async with world.worker():
            retried = await talk.send("hello", key="once")
            assert retried["message_id"] == stored[0][0]
            assert await broken(talk) == []
        again = await talk.user.send("hello", talk.conversation, key="once")
        assert again == retried
        assert await world.one("SELECT count(*) FROM turns") == 1


async def test_the_end_is_told_though_the_worker_died_between_writing_and_telling_it(world: World) -> None:
    async with world.talk() as talk:
        async with world.worker("worker.after_commit=kill") as doomed:
            first, second = await talk.send("hello"), await talk.send("and then?")
            await died(doomed)
        assert (await talk.user.state(first["message_id"]))["status"] == "done"
        seen = await talk.listener.heard("message_start", turnId=first["turn_id"])
        async with world.worker(), talk.again(seen["cursor"]) as late:
            assert await broken(talk, late) == []
        state = await talk.user.state(first["message_id"])
        assert state["turns"][0]["attempt"] == 1
        words_of_last_attempt(talk, first, state["reply"]["content"])
        await talk.listener.heard("turn_end", turnId=second["turn_id"])


async def _paused(world: World, talk: Talk, where: str) -> None:
    """A worker is stopped there for longer than its lease, another one finishes, then the first goes on."""
    async with world.server(f"{where}=stop", with_worker=True) as paused:
        first, second = await talk.send(SLOW), await talk.send("and then?")
        await halted(paused)
        seen = await talk.listener.heard("message_start", turnId=first["turn_id"])
        async with world.worker(), talk.again(seen["cursor"]) as late:
            await talk.ended(second)
            paused.signal(signal.SIGCONT)
            await until(lambda: _fenced(paused.url))
            third = await talk.send("are you still there?")
            assert await broken(talk, late) == []
            await talk.listener.heard("turn_end", turnId=third["turn_id"])
        state = await talk.user.state(first["message_id"])
        assert state["turns"][0]["attempt"] == 2
        words_of_last_attempt(talk, first, state["reply"]["content"])


async def _fenced(url: str) -> bool:
    """Whether that process has had a write refused."""
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        lines = (await http.get(f"{url}/metrics")).text.splitlines()
    return any(line.startswith("tertulia_writes_fenced_total ") and float(line.split()[1]) for line in lines)


async def test_the_end_that_a_paused_worker_writes_too_late_changes_nothing(world: World) -> None:
    async with world.talk() as talk:
        await _paused(world, talk, "worker.before_commit")
        assert await world.one("SELECT count(*) FROM messages WHERE role = 'assistant'") == 3


async def test_the_words_that_a_paused_worker_appends_too_late_are_refused(world: World) -> None:
    async with world.talk() as talk:
        await _paused(world, talk, "worker.before_append")


async def test_a_message_that_kills_every_worker_fails_and_the_next_one_is_answered(world: World) -> None:
    async with world.talk() as talk:
        poison, after = await talk.send(SLOW), await talk.send("and then?")
        for _ in range(2):
            async with world.worker("worker.mid_turn=kill", turn_attempts=2, lease_seconds=1) as doomed:
                await died(doomed)
        async with world.worker(turn_attempts=2, lease_seconds=1):
            ends = {poison["message_id"]: "failed", after["message_id"]: "done"}
            assert await broken(talk, statuses=ends) == []
        state = await talk.user.state(poison["message_id"])
        assert state["turns"][0]["code"] == "TURN_FAILED_REPEATEDLY"
        end = await talk.listener.heard("turn_end", turnId=poison["turn_id"])
        assert end["data"]["code"] == "TURN_FAILED_REPEATEDLY"


@pytest.mark.parametrize("where", ["worker.tool_called", "worker.tool_returned"])
async def test_a_notification_is_made_once_though_the_worker_died_in_the_call(
    world: World, where: str
) -> None:
    async with world.talk() as talk, User(world.url, "bob") as bob, bob.socket() as listening:
        async with world.worker(f"{where}=kill") as doomed:
            sent = await talk.send('/tool notify_user {"user_id": "bob", "message": "hi"}')
            await died(doomed)
        async with world.worker():
            assert await broken(talk) == []
        state = await talk.user.state(sent["message_id"])
        assert state["reply"]["content"] == "The tool notify_user answered: bob has been notified."
        assert state["turns"][0]["attempt"] == 2
        assert len(state["reply"]["actions"]) == 1
        assert await world.one("SELECT count(*) FROM notifications WHERE to_user_id = 'bob'") == 1
        await listening.until("notification")
        await listening.subscribe(
            talk.session
        )  # bob may not: the answer comes after everything that was pushed
        await listening.until("error")
        assert [frame["type"] for frame in listening.seen].count("notification") == 1
        steps = (
            "SELECT content_type FROM messages WHERE turn_id = $1 AND content_type LIKE 'tool%' ORDER BY seq"
        )
        rows = await world.sql(steps, sent["turn_id"])
        assert [row[0] for row in rows] == ["tool_call", "tool_result"]


async def test_abort_and_completion_have_one_winner(world: World) -> None:
    async with world.worker(), User(world.url, "ann") as user:
        await user.ask("hello")  # the model is loaded
        outcomes = [
            outcome
            for start in range(0, 40, 8)
            for outcome in await asyncio.gather(*(_race(world, n / 40) for n in range(start, start + 8)))
        ]
    assert {"aborted", "done"} == set(outcomes)


async def _race(world: World, part: float) -> str:
    """Abort while the answer is about to end; yields what became of it."""
    async with world.talk() as talk:
        sent = await talk.send("go")
        await talk.listener.heard("message_start")
        await asyncio.sleep(0.25 * part)
        answer = (await talk.user.http.post(f"/api/conversations/{talk.conversation}/abort")).json()
        winner = "done" if answer["status"] == "NOTHING_TO_ABORT" else "aborted"
        assert await broken(talk, status=winner) == []
        assert [turn["status"] for turn in answer["turns"]] == ["aborted"] * (winner == "aborted")
        again = (await talk.user.http.post(f"/api/conversations/{talk.conversation}/abort")).json()
        assert again["status"] == "NOTHING_TO_ABORT"
        state = await talk.user.state(sent["message_id"])
        assert state["status"] == winner
        words_of_last_attempt(talk, sent, state["reply"]["content"] if state["reply"] else "")
        return winner
