"""The conversations that this process is answering: one task each, a bounded number at a time."""

import asyncio
from collections import deque
from collections.abc import Collection
from uuid import UUID

from tertulia import logs, metrics
from tertulia.core.errors import Unavailable
from tertulia.core.model import Owner
from tertulia.queue.consumer import Consumer, Wakeup
from tertulia.queue.publisher import Publisher
from tertulia.store.turns import Turns
from tertulia.worker.runner import Attempt, Reason, Runner

_log = logs.get("worker")
_PUT_OFF = 5000

Place = tuple[str, UUID]  # a conversation: ids are unique within a tenant


class Pool:
    """Takes wake-ups, drains their conversations in order, and says when an entry's message has been answered."""

    def __init__(
        self,
        turns: Turns,
        runner: Runner,
        consumer: Consumer,
        publisher: Publisher,
        *,
        slots: int,
        per_tenant: int,
    ) -> None:
        self._turns = turns
        self._runner = runner
        self._consumer = consumer
        self._publisher = publisher
        self._slots = slots
        self._per_tenant = per_tenant
        self._entries: dict[Place, dict[str, Wakeup]] = {}
        self._tasks: dict[Place, asyncio.Task[None]] = {}
        self._tenants: dict[str, int] = {}
        self._parked: dict[str, deque[Wakeup]] = {}
        self._room = asyncio.Event()
        self._draining = False
        self.attempts: dict[Place, Attempt] = {}
        self.deferred: dict[str, Wakeup] = {}

    async def room(self) -> int:
        """How many more conversations can be taken, as soon as it is one or more."""
        while (free := self.free()) <= 0:
            self._room.clear()
            await self._room.wait()
        return free

    def free(self) -> int:
        """How many more conversations can be taken now."""
        put_off = sum(map(len, self._parked.values())) + len(self.deferred)
        return 0 if put_off >= _PUT_OFF else self._slots - len(self._tasks)

    def wake(self, wakeup: Wakeup) -> None:
        """See to this conversation: now, after its present turn, or when its tenant has a slot again."""
        place = (wakeup.owner.tenant, wakeup.conversation)
        parked = place in self._entries
        self._entries.setdefault(place, {})[wakeup.entry] = wakeup
        if place in self._tasks or parked or self._draining:
            return
        if self._tenants.get(wakeup.owner.tenant, 0) >= self._per_tenant:
            self._parked.setdefault(wakeup.owner.tenant, deque()).append(wakeup)
            return
        self._start(wakeup.owner, place)

    def undefer(self, entries: Collection[str], *, done: bool) -> None:
        """Put away what others have answered meanwhile (`done`), or try it again."""
        found = [self.deferred.pop(entry) for entry in entries if entry in self.deferred]
        if done:
            self._consumer.done(wakeup.entry for wakeup in found)
        else:
            for wakeup in found:
                self.wake(wakeup)
        self._room.set()

    def stop(self, turns: Collection[UUID], reason: Reason) -> None:
        """Stop those of these turns that run here."""
        for attempt in list(self.attempts.values()):
            if attempt.turn.id in turns:
                attempt.stop(reason)

    async def drain(self, patience: float) -> None:
        """Let running turns end; give back, for other workers, what does not end in time."""
        self._draining = True
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=patience)
        for attempt in list(self.attempts.values()):
            attempt.stop("drain")
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=5)
        for entries in self._entries.values():
            for wakeup in entries.values():
                self._publisher.wake(wakeup.owner, wakeup.conversation, wakeup.message)
            self._consumer.done(entries)

    def _start(self, owner: Owner, place: Place) -> None:
        self._tenants[owner.tenant] = self._tenants.get(owner.tenant, 0) + 1
        task = self._tasks[place] = asyncio.create_task(self._serve(owner, place))
        task.add_done_callback(lambda _: self._end(owner, place))
        metrics.RUNNING.set(len(self._tasks))

    def _end(self, owner: Owner, place: Place) -> None:
        del self._tasks[place]
        self._tenants[owner.tenant] -= 1
        if not self._tenants[owner.tenant]:
            del self._tenants[owner.tenant]
        metrics.RUNNING.set(len(self._tasks))
        self._room.set()
        if self._entries.get(place) and not self._draining:
            self._start(owner, place)
        self._unpark(owner.tenant)

    def _unpark(self, tenant: str) -> None:
        parked = self._parked.get(tenant)
        while parked and not self._draining and self._tenants.get(tenant, 0) < self._per_tenant:
            wakeup = parked.popleft()
            place = (tenant, wakeup.conversation)
            if place not in self._tasks and place in self._entries:
                self._start(wakeup.owner, place)
        if parked is not None and not parked:
            del self._parked[tenant]

    async def _serve(self, owner: Owner, place: Place) -> None:
        try:
            await self._answer_all(owner, place)
        except Unavailable:
            await asyncio.sleep(0.5)
            self._defer(place)
        except Exception as error:  # noqa: BLE001  one broken conversation must not end the worker
            _log.error("conversation broke", conversation=str(place[1]), exc_info=error)
            self._defer(place)

    async def _answer_all(self, owner: Owner, place: Place) -> None:
        while not self._draining:
            before = list(self._entries.get(place, ()))
            taken = await self._turns.take(owner, place[1])
            if taken == "held":
                self._defer(place)
                return
            if isinstance(taken, str):
                self._done(place, before)
                return
            attempt = self.attempts[place] = Attempt(taken)
            try:
                more = await self._runner.run(attempt)
            finally:
                del self.attempts[place]
            if more is None:
                self._lose(place, attempt)
                return
            self._done(
                place, [e for e, w in self._entries.get(place, {}).items() if w.message == taken.message]
            )
            if more and self._draining:
                await self._turns.release(taken)  # for the next worker, at once
            if not more and place not in self._entries:
                return

    def _done(self, place: Place, entries: list[str]) -> None:
        self._consumer.done(entries)
        waiting = self._entries.get(place, {})
        for entry in entries:
            waiting.pop(entry, None)
        if not waiting:
            self._entries.pop(place, None)

    def _lose(self, place: Place, attempt: Attempt) -> None:
        if attempt.reason != "drain":
            self._defer(place)

    def _defer(self, place: Place) -> None:
        """Keep the entries pending, and look later whether somebody has answered them."""
        for entry, wakeup in self._entries.pop(place, {}).items():
            self.deferred[entry] = wakeup
