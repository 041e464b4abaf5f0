"""What a worker does by the clock: renew leases, look for aborts, see to entries that were left."""

from collections.abc import Awaitable
from typing import NoReturn

from tertulia import logs, metrics
from tertulia.duties import every
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
        self._pool.undefer([name for name in waiting if name[1] in ended], done=True)
        open_still = [name for name in waiting if name[1] not in ended]
        self._pool.undefer(open_still[: max(self._pool.slots, 0)], done=False)

    async def claim_abandoned(self) -> None:
        """Take over entries of workers that are gone."""
        room = min(self._pool.free(), _CLAIMED_AT_ONCE)
        if room <= 0:
            return
        for wakeup in await self._consumer.claim(self._lease * 2, room):
            metrics.RECLAIMED.inc()
            self._pool.wake(wakeup)
