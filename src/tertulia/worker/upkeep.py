"""What a worker does by the clock: renew leases, look for aborts, see to entries that were left."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from redis.exceptions import RedisError

from tertulia import logs, metrics
from tertulia.core.errors import Unavailable
from tertulia.queue.consumer import Consumer
from tertulia.store.database import Database
from tertulia.store.turns import Turns
from tertulia.worker.pool import Pool

_log = logs.get("worker")
_ABORT_POLL = 0.5
_CLAIMED_AT_ONCE = 100


class Upkeep:
    """The periodic duties of one worker process."""

    def __init__(
        self, pool: Pool, turns: Turns, consumer: Consumer, database: Database, lease: float
    ) -> None:
        self._pool = pool
        self._turns = turns
        self._consumer = consumer
        self._database = database
        self._lease = lease

    def duties(self) -> list[Awaitable[NoReturn]]:
        return [
            every(self._lease / 3, self.renew_leases),
            every(_ABORT_POLL, self.look_for_aborts),
            every(max(self._lease / 3, 0.3), self.see_to_deferred),
            every(self._lease, self.claim_abandoned),
        ]

    async def renew_leases(self) -> None:
        held = {attempt.turn.conversation: attempt.turn for attempt in self._pool.attempts.values()}
        if not held:
            return
        kept = await self._turns.renew({name: turn.owner.tenant for name, turn in held.items()})
        lost = {turn.id for name, turn in held.items() if name not in kept}
        if lost:
            _log.warning("leases lost", turns=[str(turn) for turn in lost])
            self._pool.stop(lost, "lost")

    async def look_for_aborts(self) -> None:
        running = {attempt.turn.id: attempt.turn.owner.tenant for attempt in self._pool.attempts.values()}
        if running:
            self._pool.stop(await self._turns.aborting(running), "abort")

    async def see_to_deferred(self) -> None:
        """Acknowledge what others have answered meanwhile; try the rest again."""
        waiting = dict(list(self._pool.deferred.items())[:1000])
        if not waiting:
            return
        rows = await self._database.many(
            "ended_messages",
            tenants=[wakeup.owner.tenant for wakeup in waiting.values()],
            messages=[wakeup.message for wakeup in waiting.values()],
        )
        ended = {row["id"] for row in rows}
        self._pool.undefer([entry for entry, wakeup in waiting.items() if wakeup.message in ended], done=True)
        open_still = [entry for entry, wakeup in waiting.items() if wakeup.message not in ended]
        self._pool.undefer(open_still[: max(self._pool.free(), 0)], done=False)

    async def claim_abandoned(self) -> None:
        """Take over entries of workers that are gone."""
        room = min(self._pool.free(), _CLAIMED_AT_ONCE)
        if room <= 0:
            return
        for wakeup in await self._consumer.claim(self._lease * 2, room):
            metrics.RECLAIMED.inc()
            self._pool.wake(wakeup)


async def every(seconds: float, duty: Callable[[], Awaitable[object]]) -> NoReturn:
    """Do it again and again; while a service is away, it is tried again next time."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await duty()
        except (Unavailable, RedisError, OSError, TimeoutError) as error:
            _log.warning("duty postponed", duty=duty.__name__, error=type(error).__name__)
        except Exception as error:  # noqa: BLE001  a duty that ended in silence would be missed by everybody
            _log.error("duty broke", duty=duty.__name__, exc_info=error)
