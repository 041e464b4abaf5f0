"""What a paused worker says too late, and what a dead server did not get to say."""

import signal

import httpx
import pytest

from tests.faults.promises import broken
from tests.faults.world import World, died, halted, until
from tests.support.client import User

SLOW = "/slow 0.3 tell me something"


async def test_no_words_come_after_an_abort_that_another_worker_wrote(world: World) -> None:
    async with world.talk() as talk, world.worker("worker.before_append=stop") as paused:
        first = await talk.send(SLOW)
        await halted(paused)
        await talk.user.http.post(f"/api/conversations/{talk.conversation}/abort")
        async with world.worker():
            await talk.ended(first)
            paused.signal(signal.SIGCONT)
            await until(lambda: "late end refused" in paused.text or "leases lost" in paused.text)
            second = await talk.send("and then?")
            await talk.ended(second)
            assert await broken(talk, statuses={first["message_id"]: "aborted"}) == []
    assert talk.listener.of(first["turn_id"])[-1]["type"] == "turn_end"


async def test_a_question_is_shown_before_its_answer_though_the_server_died_before_showing_it(
    world: World,
) -> None:
    async with world.talk() as talk, world.server("api.after_commit=kill") as doomed:
        async with User(doomed.url, "ann") as user:
            with pytest.raises(httpx.TransportError):
                await user.post("hello", talk.conversation, key="once")
        await died(doomed)
        async with world.worker():
            sent = await talk.send("hello", key="once")
            await talk.ended(sent)
    about = [event["type"] for event in talk.listener.of(sent["turn_id"])]
    assert about[:2] == ["conversation:user_message", "message_start"]
    assert about.count("conversation:user_message") == 1


async def test_a_message_whose_acceptance_nobody_heard_of_is_answered_at_once_when_it_is_repeated(
    world: World,
) -> None:
    """Not only when the sweeper looks, a lease later."""
    async with world.talk() as talk, world.server("api.after_commit=kill", lease_seconds=15) as doomed:
        async with User(doomed.url, "ann") as user:
            with pytest.raises(httpx.TransportError):
                await user.post("hello", talk.conversation, key="once")
        await died(doomed)
        async with world.worker(lease_seconds=15, sweep_seconds=60):
            sent = await talk.send("hello", key="once")
            await talk.ended(sent, 3)


async def test_an_answer_that_waits_for_a_worker_can_be_stopped_though_there_is_none(world: World) -> None:
    async with world.talk() as talk:
        first, second = await talk.send("one"), await talk.send("two")
        path = f"/api/conversations/{talk.conversation}/abort"
        stopped = (await talk.user.http.post(path, json={"turn_id": first["turn_id"]})).json()
        assert stopped["status"] == "GENERATION_ABORTED"
        assert [(turn["id"], turn["status"]) for turn in stopped["turns"]] == [(first["turn_id"], "aborted")]
        await talk.ended(first)
        again = (await talk.user.http.post(path, json={"turn_id": first["turn_id"]})).json()
        assert again == stopped
        async with world.worker():
            assert await broken(talk, statuses={first["message_id"]: "aborted"}) == []
        assert (await talk.user.state(second["message_id"]))["status"] == "done"
        late = await talk.user.http.post(path, json={"turn_id": second["turn_id"]})
        assert [turn["status"] for turn in late.json()["turns"]] == ["done"]
        none = await talk.user.http.post(path, json={"turn_id": talk.conversation})
        assert (none.status_code, none.json()["error"]["code"]) == (404, "TURN_NOT_FOUND")
