"""Entries that a worker had taken and did not see to: taken over in time, or gone from the stream meanwhile."""

from typing import Any

import pytest

from tertulia.queue.consumer import Consumer, Wakeup
from tertulia.queue.publisher import GROUP, STREAM
from tertulia.valkey import Pipeline, connect
from tests.faults.promises import broken
from tests.faults.world import Talk, World, died, until

SLOW = "/slow 0.3 tell me something"


async def left_behind(world: World, talk: Talk) -> list[bytes]:
    """The entries of two messages that a worker has taken; it was killed while it answered the first."""
    await talk.send(SLOW)
    await talk.send("and then?")
    async with world.worker("worker.mid_turn=kill") as doomed:
        await died(doomed)
    await until(lambda: _counted(world, pending=2, entries=2))
    return [entry for entry, _ in await world.valkey.xrange(STREAM)]


async def _counted(world: World, *, pending: int, entries: int) -> bool:
    """Whether so many entries wait to be acknowledged, and so many are in the stream."""
    waiting = (await world.valkey.xpending(STREAM, GROUP))["pending"]
    return (waiting, await world.valkey.xlen(STREAM)) == (pending, entries)


async def test_what_a_killed_worker_had_taken_is_acknowledged_by_the_one_that_answers(world: World) -> None:
    async with world.talk() as talk:
        await left_behind(world, talk)
        async with world.worker():
            assert await broken(talk) == []
            await until(lambda: _counted(world, pending=0, entries=0))


@pytest.mark.parametrize("how", ["deleted", "trimmed"])
async def test_entries_that_are_gone_while_they_are_pending_hold_nobody_up(world: World, how: str) -> None:
    async with world.talk() as talk:
        entries = await left_behind(world, talk)
        if how == "deleted":
            await world.valkey.xdel(STREAM, *entries)
        else:
            await world.valkey.xtrim(STREAM, maxlen=0, approximate=False)
        assert await _counted(world, pending=2, entries=0)
        async with world.worker() as worker:
            await talk.send("are you there?")
            assert await broken(talk) == []
            await until(lambda: _counted(world, pending=0, entries=0))
            await talk.ended(await talk.send("and now?"))
            await until(lambda: _counted(world, pending=0, entries=0))
        assert '"level": "error"' not in worker.text


async def test_entries_that_are_gone_while_a_worker_sees_to_them_are_acknowledged_all_the_same(
    world: World,
) -> None:
    async with world.talk() as talk, world.worker() as worker:
        sent = await talk.send("/slow 1 tell me something long")
        await talk.listener.heard("text_delta", turnId=sent["turn_id"])
        assert await _counted(world, pending=1, entries=1)
        await world.valkey.xtrim(STREAM, maxlen=0, approximate=False)
        await talk.send("and then?")
        assert await broken(talk) == []
        await until(lambda: _counted(world, pending=0, entries=0))
        assert '"level": "error"' not in worker.text


GOOD: Any = (
    b"2-0",
    {
        b"tenant_id": b"acme",
        b"user_id": b"ann",
        b"conversation_id": b"6" * 32,
        b"message_id": b"7" * 32,
    },
)


@pytest.mark.parametrize("nil", [None, (None, None)], ids=["as it is sent", "as redis-py hands it on"])
async def test_the_nil_that_redis_6_2_has_for_a_deleted_entry_is_passed_over(world: World, nil: Any) -> None:
    client = connect(world.settings["redis_url"])
    pipeline = Pipeline(client)
    consumer = Consumer(client, pipeline, "nobody")
    try:
        found: list[Wakeup] = consumer._wakeups([nil, GOOD, nil])
    finally:
        await pipeline.close()
        await client.aclose()
    assert [(wakeup.entry, wakeup.owner.user) for wakeup in found] == [("2-0", "ann")]
