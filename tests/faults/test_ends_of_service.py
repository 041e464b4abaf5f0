"""Redis that stalls and servers that stop: what was accepted goes on, and nobody waits for nothing."""

import asyncio
import signal
import time
from collections.abc import AsyncGenerator
from uuid import UUID

import pytest
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed

from tertulia.core.errors import Unavailable
from tertulia.queue.publisher import GROUP, STREAM
from tertulia.valkey import Pipeline, connect
from tests.faults.promises import broken
from tests.faults.world import World, frozen, until
from tests.support.client import Socket, User, token
from tests.support.valkey import running_valkey

PATIENCE = 0.4


async def test_a_turn_is_answered_from_the_log_while_the_redis_of_its_context_stalls(world: World) -> None:
    """The wake-up has come; what the model is to be shown is asked of a Redis that does not answer."""
    async with world.talk() as talk, world.worker(context_store="redis", turn_attempts=1) as worker:
        await talk.ended(await talk.send("hello"))
        await until(lambda: _pending(world, 0))
        worker.signal(signal.SIGSTOP)
        sent = await talk.send("and now?")
        await until(lambda: _pending(world, 1))
        async with frozen(world.valkeys()):
            worker.signal(signal.SIGCONT)
            state = await talk.user.answered(sent)
            assert (state["status"], state["turns"][0]["code"]) == ("done", None)
        assert await broken(talk) == []


async def _pending(world: World, number: int) -> bool:
    """Whether workers have so many wake-ups that they have not seen to."""
    return (await world.valkey.xpending(STREAM, GROUP))["pending"] == number


async def test_a_socket_that_signs_in_while_redis_stalls_is_closed_and_not_left_without_pushes(
    world: World,
) -> None:
    async with dial(world.url.replace("http", "ws", 1) + "/ws", proxy=None) as connection:
        socket = Socket(connection)
        async with frozen(world.valkeys()):
            await socket.say(type="auth", token=token("ann"))
            with pytest.raises(ConnectionClosed) as closed:
                await socket.until("connected", 12)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
    async with User(world.url) as ann:
        await until(lambda: _connected(ann))


async def _connected(user: User) -> bool:
    """Whether a socket is greeted now."""
    try:
        async with user.socket():
            return True
    except ConnectionClosed:
        return False


async def test_a_message_that_waits_behind_the_last_answer_of_a_server_is_answered_by_the_next_at_once(
    world: World,
) -> None:
    async with world.talk() as talk:
        async with world.worker(lease_seconds=15, drain_seconds=10) as worker:
            first = await talk.send("/slow 0.5 tell me something long")
            behind = await talk.send("and then?")
            await talk.listener.heard("text_delta", turnId=first["turn_id"])
            assert await asyncio.to_thread(worker.stop) == 0
        assert (await talk.user.state(first["message_id"]))["status"] == "done"
        assert (await talk.user.state(behind["message_id"]))["status"] == "queued"
        owner = "SELECT lease_owner FROM conversations WHERE id = $1"
        assert await world.one(owner, UUID(talk.conversation)) is None
        async with world.worker(lease_seconds=15):
            began = time.monotonic()
            await talk.ended(behind)
            assert time.monotonic() - began < 7
        assert await broken(talk) == []


@pytest.fixture
async def stalled() -> AsyncGenerator[Pipeline]:
    """A pipeline to a server that has answered so far, and does not any more until the test is over."""
    with running_valkey() as url:
        client = connect(url, timeout=PATIENCE)
        pipeline = Pipeline(client)
        server = await pipeline.call("INFO", "server")
        pid = next(int(line.split(b":")[1]) for line in server.splitlines() if line.startswith(b"process_id"))
        async with frozen([pid]):
            yield pipeline
        assert await pipeline.call("PING") == b"PONG"
        await pipeline.close()
        await client.aclose()


async def test_commands_that_nobody_waits_for_are_dropped_and_not_refused_when_too_many_are_pending(
    stalled: Pipeline,
) -> None:
    for number in range(60_000):
        stalled.post("SET", "key", number)
    begun = stalled.begin("PING")  # tells whoever waits for it, and not whoever begins it
    with pytest.raises(Unavailable):
        await begun
    with pytest.raises(Unavailable):
        await stalled.call("PING")
    await stalled.drain()


async def test_all_that_wait_for_a_stalled_redis_are_told_after_one_time_out(stalled: Pipeline) -> None:
    began = time.monotonic()
    waiting = [stalled.begin("PING") for _ in range(10_001)]
    told = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(each) for each in told} == {Unavailable}
    assert time.monotonic() - began < PATIENCE * 5
