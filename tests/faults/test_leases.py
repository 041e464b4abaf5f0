"""A lease is renewed for as long as the turn takes, and nobody else begins it meanwhile."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.faults.promises import broken, words_of_last_attempt
from tests.faults.world import World, running
from tests.support.instance import Instance

LONG = "/slow 5 tell me something long"  # more than three leases


@asynccontextmanager
async def unrenewed(world: World) -> AsyncGenerator[Instance]:
    """A server with a worker that lets its leases run out: see `unrenewed.py`."""
    instance = Instance("serve", world.folder, **world.settings)
    script = str(Path(__file__).with_name("unrenewed.py"))
    instance._command = [sys.executable, script, "serve", "--port", "0"]
    async with running(instance) as started:
        yield started


async def refused(server: Instance) -> float:
    """How many late writes of this process were refused."""
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        lines = (await http.get(f"{server.url}/metrics")).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("tertulia_writes_fenced_total "))


async def test_a_turn_that_takes_three_leases_is_answered_once_by_the_worker_that_began_it(
    world: World,
) -> None:
    async with (
        world.talk() as talk,
        world.server(with_worker=True) as one,
        world.server(with_worker=True) as two,
    ):
        sent = await talk.send(LONG)
        assert await broken(talk) == []
        state = await talk.user.state(sent["message_id"])
        assert state["turns"][0]["attempt"] == 1
        events = talk.listener.of(sent["turn_id"])
        assert [e["attempt"] for e in events if e["type"] == "message_start"] == [1]
        words_of_last_attempt(talk, sent, state["reply"]["content"])
        assert await world.one("SELECT count(*) FROM messages WHERE role = 'assistant'") == 1
        assert [await refused(one), await refused(two)] == [0, 0]
        assert "leases lost" not in one.text + two.text


async def test_without_renewing_another_worker_begins_the_same_turn_again(world: World) -> None:
    async with world.talk() as talk, unrenewed(world):
        sent = await talk.send(LONG)
        await talk.listener.heard("text_delta", turnId=sent["turn_id"], attempt=1)
        async with world.worker():
            await talk.listener.heard("message_start", turnId=sent["turn_id"], attempt=2)
