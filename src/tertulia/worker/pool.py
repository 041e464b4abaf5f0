"""The conversations that this process is answering: one task each, a bounded number at a time."""

import asyncio
from collections.abc import Collection
from uuid import UUID

from tertulia import logs, metrics
from tertulia.core.errors import Unavailable
from tertulia.core.model import Owner
from tertulia.queue.consumer import Consumer, Wakeup
from tertulia.queue.publisher import Publisher
from tertulia.store.turns import Turns
from tertulia.worker.runner import Attempt, Reason, Runner
from tertulia.worker.shares import Shares

_log = logs.get("worker")
_PUT_OFF = 5000

Place = tuple[str, UUID]  # a conversation, or a message: ids are unique within a tenant


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
        shares: Shares,
    ) -> None:
        self._turns = turns
        self._runner = runner
        self._consumer = consumer
        self._publisher = publisher
        self._slots = slots
        self._shares = shares
        self._entries: dict[Place, dict[UUID, Wakeup]] = {}
        self._tasks: dict[Place, asyncio.Task[None]] = {}
        self._woken: set[Place] = set()  # places for which a wake-up came while they were being looked at
        self._room = asyncio.Event()
        self._draining = False
        self._leaving = False
        self.attempts: dict[Place, Attempt] = {}
        self.deferred: dict[Place, Wakeup] = {}

    async def room(self) -> int:
        """How many more conversations can be taken, as soon as it is one or more."""
        while (free := self.free()) <= 0:
            self._room.clear()
            await self._room.wait()
        return free

    @property
    def slots(self) -> int:
        """How many conversations could be served besides those that are."""
        return self._slots - len(self._tasks)

    def free(self) -> int:
        """How many more conversations can be taken from the stream now."""
        return 0 if len(self.deferred) >= _PUT_OFF else self.slots

    def wake(self, wakeup: Wakeup) -> None:
        """See to this conversation: now, after its present turn, or when its user has a slot again."""
        place = (wakeup.owner.tenant, wakeup.conversation)
        known = self._entries.get(place)
        if place in self._tasks:
            self._woken.add(place)
        if known and wakeup.message in known:
            if known[wakeup.message].entry != wakeup.entry:  # a message is woken for again while it waits
                self._consumer.done([wakeup.entry])
            return
        self._entries.setdefault(place, {})[wakeup.message] = wakeup
        if known is None and place not in self._tasks and not self._draining:
            self._begin(wakeup, place)

    def undefer(self, names: Collection[Place], *, done: bool) -> None:
        """Put away what others have answered meanwhile (`done`), or try it again."""
        found = [self.deferred.pop(name) for name in names if name in self.deferred]
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
        self._leaving = True
        for attempt in list(self.attempts.values()):
            attempt.stop("drain")
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=5)
        for entries in self._entries.values():
            for wakeup in entries.values():
                self._publisher.wake(wakeup.owner, wakeup.conversation, wakeup.message)
            self._consumer.done(wakeup.entry for wakeup in entries.values())

    def _begin(self, wakeup: Wakeup, place: Place) -> None:
        """Take a slot, or wait for one. Where too many wait, the sweeper will wake us again."""
        if self._shares.enter(wakeup.owner):
            self._start(wakeup.owner, place)
        elif not self._shares.park(wakeup):
            self._done(place, self._waiting(place))

    def _start(self, owner: Owner, place: Place) -> None:
        task = self._tasks[place] = asyncio.create_task(self._serve(owner, place))
        task.add_done_callback(lambda _: self._end(owner, place))
        metrics.RUNNING.set(len(self._tasks))

    def _end(self, owner: Owner, place: Place) -> None:
        del self._tasks[place]
        self._woken.discard(place)
        self._shares.leave(owner)
        metrics.RUNNING.set(len(self._tasks))
        self._room.set()
        if self._draining:
            return
        if waiting := self._waiting(place):
            self._begin(waiting[0], place)
        while (wakeup := self._shares.next(owner.tenant)) is not None:
            self._unpark(wakeup)

    def _unpark(self, wakeup: Wakeup) -> None:
        place = (wakeup.owner.tenant, wakeup.conversation)
        if place not in self._tasks and place in self._entries and self._shares.enter(wakeup.owner):
            self._start(wakeup.owner, place)

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
            self._woken.discard(place)
            before = self._waiting(place)
            taken = await self._turns.take(owner, place[1])
            if taken == "held":
                self._defer(place)
                return
            if isinstance(taken, str):
                if place in self._woken:
                    continue
                self._done(place, before)
                return
            if self._leaving:
                await self._turns.release(taken)
                return
            attempt = self.attempts[place] = Attempt(taken)
            try:
                more = await self._runner.run(attempt)
            finally:
                del self.attempts[place]
            if more is None:
                self._lose(place, attempt)
                return
            self._done(place, [each for each in self._waiting(place) if each.message == taken.message])
            if more and self._draining:
                await self._turns.release(taken)  # for the next worker, at once
            if not (more or place in self._woken or place in self._entries):
                return

    def _waiting(self, place: Place) -> list[Wakeup]:
        return list(self._entries.get(place, {}).values())

    def _done(self, place: Place, answered: list[Wakeup]) -> None:
        self._consumer.done(wakeup.entry for wakeup in answered)
        waiting = self._entries.get(place, {})
        for wakeup in answered:
            waiting.pop(wakeup.message, None)
        if not waiting:
            self._entries.pop(place, None)

    def _lose(self, place: Place, attempt: Attempt) -> None:
        if attempt.reason != "drain":
            self._defer(place)

    def _defer(self, place: Place) -> None:
        """Keep the entries pending, and look later whether somebody has answered them."""
        for wakeup in self._entries.pop(place, {}).values():
            name = (wakeup.owner.tenant, wakeup.message)
            if (known := self.deferred.get(name)) and known.entry != wakeup.entry:
                self._consumer.done([known.entry])
            self.deferred[name] = wakeup
