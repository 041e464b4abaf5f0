"""Nobody waits for a conversation that hangs or for a tenant that floods."""

import asyncio
import statistics
import time
from collections import Counter
from contextlib import AsyncExitStack
from uuid import uuid4

from tertulia.core.model import Owner
from tertulia.queue.consumer import Wakeup
from tertulia.worker.pool import Pool
from tertulia.worker.shares import Shares
from tests.faults.promises import broken
from tests.faults.world import World
from tests.support.client import User


async def test_a_conversation_that_hangs_delays_no_other_while_slots_remain(world: World) -> None:
    async with world.talk() as hung, world.worker(worker_slots=2, running_turns_per_tenant=2):
        stuck = await hung.send("/slow 60 I think about it")
        behind = await hung.send("and then?")
        await hung.listener.heard("text_delta", turnId=stuck["turn_id"])
        async with AsyncExitStack() as stack:
            others = [await stack.enter_async_context(world.talk("bob", tenant="other")) for _ in range(5)]
            for talk in others:
                await talk.send("hello")
            for talk in others:
                assert await broken(talk) == []
        assert (await hung.user.state(stuck["message_id"]))["status"] == "running"
        assert (await hung.user.state(behind["message_id"]))["status"] == "queued"
        await hung.user.http.post(f"/api/conversations/{hung.conversation}/abort")
        ends = {stuck["message_id"]: "aborted", behind["message_id"]: "done"}
        assert await broken(hung, statuses=ends) == []


async def test_a_tenant_that_floods_does_not_starve_another(world: World) -> None:
    running = "SELECT user_id FROM turns WHERE tenant = 'flood' AND status = 'running' ORDER BY user_id"
    async with (
        User(world.url, "eve", "flood") as eve,
        User(world.url, "mallory", "flood") as mallory,
        world.worker(worker_slots=8),
    ):
        await asyncio.gather(
            *(each.send("/slow 60 let us see") for each in (eve, mallory) for _ in range(15))
        )
        async with world.talk() as talk:
            for _ in range(3):
                await talk.ended(await talk.send("hello"), 5)
            assert await broken(talk) == []
        assert len(await world.sql(running)) == 7


async def test_a_user_who_floods_does_not_starve_others_of_the_same_tenant(world: World) -> None:
    async with User(world.url, "eve", "flood") as eve, world.worker(worker_slots=8):
        await asyncio.gather(*(eve.send("/slow 60 let us see") for _ in range(30)))
        async with world.talk("ann", tenant="flood") as talk:
            for _ in range(3):
                await talk.ended(await talk.send("hello"), 5)
            assert await broken(talk) == []
        running = "SELECT count(*) FROM turns WHERE user_id = 'eve' AND status = 'running'"
        assert await world.one(running) == 6


async def _insist_in_vain(user: User, codes: "Counter[tuple[int, str]]") -> None:
    """Send to a conversation that is full, as fast as one connection can."""
    while True:
        response = await user.post("let me in", "full")
        codes[response.status_code, response.json()["error"]["code"]] += 1


async def _waits(user: User, seconds: float) -> list[float]:
    """How long each message of somebody who sends one after another took to be accepted."""
    waits: list[float] = []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        await user.send(f"message {len(waits)}")
        waits.append(time.monotonic() - began)
    return waits


async def test_one_who_is_refused_again_and_again_slows_nobody_of_another_tenant(world: World) -> None:
    """What is refused comes in the same groups as what others send, and is committed together with it."""
    codes: Counter[tuple[int, str]] = Counter()
    async with (
        world.server(open_turns_per_user=0, queued_per_conversation=20) as server,
        User(server.url, "mallory", "flood") as mallory,
        AsyncExitStack() as stack,
    ):
        for _ in range(20):
            await mallory.send("fill it", "full")
        others = [await stack.enter_async_context(User(server.url, name)) for name in ("ann", "bob", "cleo")]
        insisting = asyncio.create_task(_insist_in_vain(mallory, codes))
        waits = [wait for each in await asyncio.gather(*(_waits(u, 2) for u in others)) for wait in each]
        insisting.cancel()
        await asyncio.wait([insisting])
    assert set(codes) == {(429, "CONVERSATION_BUSY")}
    assert codes.total() > 50
    assert statistics.median(waits) < 0.25
    assert await world.one("SELECT count(*) FROM messages WHERE tenant = 'acme'") == len(waits)
    assert await world.one("SELECT count(*) FROM messages WHERE tenant = 'flood'") == 20


async def test_a_conversation_that_waits_for_its_tenant_is_parked_once() -> None:
    """Its entry is reclaimed again and again while it waits; that must not fill the worker's memory."""
    pool = Pool(*([_Never()] * 4), slots=4, shares=Shares(1, 1))  # type: ignore[arg-type]
    busy, waiting = (Wakeup("1-0", Owner("acme", "ann"), uuid4(), uuid4()) for _ in range(2))
    pool.wake(busy)
    for _ in range(100):
        pool.wake(waiting)
    assert pool._shares._lengths == {"acme": 1}
    assert await pool.room() == 3
    (serving,) = pool._tasks.values()
    pool._draining = True
    serving.cancel()
    await asyncio.wait([serving])


class _Never:
    """Turns that cannot be taken for ever."""

    async def take(self, *_: object) -> None:
        await asyncio.Event().wait()
