"""A worker: reads wake-ups, answers turns, keeps its leases, until it is told to stop."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

from redis.exceptions import RedisError

from tertulia import logs
from tertulia.agents.registry import Agents
from tertulia.context.recall import Recall
from tertulia.duties import end, every
from tertulia.queue import hints
from tertulia.queue.consumer import Consumer
from tertulia.queue.outbox import Outbox
from tertulia.queue.sweeper import Sweeper
from tertulia.settings import Settings
from tertulia.store.turns import Turns
from tertulia.tools.notify_user import NotifyUser
from tertulia.tools.present import Present
from tertulia.valkey import connect
from tertulia.wiring import Services, context_stores
from tertulia.worker.pool import Pool
from tertulia.worker.runner import Runner
from tertulia.worker.shares import Shares
from tertulia.worker.upkeep import Upkeep

_log = logs.get("worker")
_BLOCK = 5.0
_INDEX = 0.5
_HELD = 20  # the context holds so many messages of a conversation


@asynccontextmanager
async def worker(parts: Services) -> AsyncGenerator[None]:
    """A worker beside whatever else this process does; leaving drains it."""
    settings = parts.settings
    blocking = connect(parts.redis_url, timeout=_BLOCK + 5)
    consumer = Consumer(blocking, parts.pipeline, f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:6]}")
    turns = Turns(parts.database, uuid4(), settings.lease_seconds)
    stores = context_stores(settings, parts.valkey)
    outbox = Outbox(parts.database, parts.events)
    runner = Runner(
        Agents(settings, [NotifyUser(parts.notifications, parts.events), Present()]),
        Recall(stores, parts.messages, _HELD),
        turns,
        parts.events,
        outbox,
        timeout=settings.turn_timeout,
        attempts=settings.turn_attempts,
        patience=settings.lease_seconds * 2,
    )
    pool = Pool(
        turns, runner, consumer, parts.publisher,
        slots=settings.worker_slots, shares=_shares(settings),
    )  # fmt: skip
    sweeper = Sweeper(
        parts.database, consumer, parts.publisher, outbox, parts.events,
        quiet=max(settings.lease_seconds, settings.sweep_seconds), erase_after=settings.delete_seconds,
    )  # fmt: skip

    async def heed(payload: bytes) -> None:
        hint = hints.parse(payload)
        pool.stop(hint.turns, "abort")
        if hint.owner and hint.forget:
            await stores.open(hint.owner).delete(str(hint.forget))

    await parts.relay.on(hints.CHANNEL, heed)
    reading = asyncio.create_task(_read(pool, consumer))
    duties = [
        asyncio.ensure_future(duty)
        for duty in (
            *Upkeep(pool, turns, consumer, parts.database, settings.lease_seconds).duties(),
            every(settings.sweep_seconds, sweeper.wake_forgotten),
            every(settings.sweep_seconds, sweeper.publish_ends),
            every(settings.sweep_seconds, sweeper.erase_deleted),
            every(_INDEX, sweeper.index),
            every(60, sweeper.forget_keys),
            every(5, parts.backlog.count),
            every(5, stores.sweep),
            every(300, stores.report),
        )
    ]
    try:
        yield
    finally:
        await end(reading)
        await pool.drain(settings.drain_seconds)
        await end(*duties)
        await outbox.drain()
        await parts.pipeline.drain()
        with contextlib.suppress(RedisError, OSError):
            await consumer.leave()
        await stores.close()
        await blocking.aclose()


def _shares(settings: Settings) -> Shares:
    """One tenant never takes all slots, so that another's message finds one; nor one user all of those."""
    per_tenant = min(settings.running_turns_per_tenant, _but_an_eighth(settings.worker_slots))
    return Shares(per_tenant, _but_an_eighth(per_tenant))


def _but_an_eighth(number: int) -> int:
    return max(1, number - max(1, number // 8))


async def _read(pool: Pool, consumer: Consumer) -> None:
    while True:
        free = await pool.room()
        try:
            for wakeup in await consumer.read(min(free, 64), _BLOCK):
                pool.wake(wakeup)
        except (RedisError, OSError, TimeoutError) as error:
            _log.warning("stream not readable", error=type(error).__name__)
            await asyncio.sleep(0.5)
