"""Group commit: what many ask for at once shares a transaction, one round trip and one wait for the disk."""

import asyncio
from typing import NamedTuple

import asyncpg

from tertulia.core.errors import Unavailable
from tertulia.store.database import Database
from tertulia.store.wire import Row

_MOST = 64
_PATIENCE = 10.0  # seconds to wait for one's turn
_LOCK = "100ms"  # for a lock that somebody else holds, where many wait for us


class _Call(NamedTuple):
    order: str
    given: dict[str, object]
    answer: "asyncio.Future[Row]"
    until: float


class GroupCommit:
    """Calls of one function of schema `api`. Those that come while others are being committed go together next.

    The function takes as `lock_wait` how long it may wait for a lock, or None.

    Nobody suffers from the company: where one call fails, or has to wait for a lock, nothing of its group was done,
    and each is called again in a transaction of its own.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._waiting: list[_Call] = []
        self._committing: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()

    async def one(self, order: str, **given: object) -> Row:
        """The one row that this call yields, once it is committed. `order` is that in which a group takes its locks."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Row] = loop.create_future()
        self._waiting.append(_Call(order, given, answer, loop.time() + _PATIENCE))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_all())
        return await answer

    async def _commit_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            await self._commit(sorted(self._patient(group), key=lambda call: call.order))

    def _patient(self, group: list[_Call]) -> list[_Call]:
        """Those who have not waited too long already, such as for a database that does not answer."""
        now = asyncio.get_running_loop().time()
        for call in group:
            if call.until < now:
                _refuse(call, Unavailable("The database does not keep up. Please try again shortly."))
        return [call for call in group if call.until >= now]

    async def _commit(self, group: list[_Call]) -> None:
        try:
            given = [{**call.given, "lock_wait": _LOCK} for call in group]
            rows = await self._database.together(self._name, given) if given else []
        except Unavailable as error:  # whether it was committed, nobody knows: it may not be done again here
            for call in group:
                _refuse(call, Unavailable(str(error)))
        except asyncpg.LockNotAvailableError:
            self._part(group)
        except Exception as error:  # noqa: BLE001  whatever it was, it was one call's; the others are innocent
            if len(group) == 1:
                _refuse(group[0], error)
            else:
                self._part(group)
        else:
            for call, row in zip(group, rows, strict=True):
                _answer(call, row)

    def _part(self, group: list[_Call]) -> None:
        for call in group:
            task = asyncio.create_task(self._call_alone(call))
            self._alone.add(task)
            task.add_done_callback(self._alone.discard)

    async def _call_alone(self, call: _Call) -> None:
        try:
            _answer(call, await self._database.one(self._name, **call.given, lock_wait=None))
        except Exception as error:  # noqa: BLE001  it is the caller's
            _refuse(call, error)


def _answer(call: _Call, row: Row) -> None:
    if not call.answer.done():  # else whoever asked has left
        call.answer.set_result(row)


def _refuse(call: _Call, error: Exception) -> None:
    if not call.answer.done():
        call.answer.set_exception(error)
