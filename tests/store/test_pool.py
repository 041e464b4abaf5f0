"""Connections are lent in the order in which they were asked for, and none is ever lost."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest

from tertulia.embedded import Services
from tertulia.store import pool as pools
from tertulia.store.pool import Pool
from tertulia.store.wire import Connection, connect


@pytest.fixture
async def pool(backends: Services) -> AsyncIterator[Pool]:
    """One connection, for whoever comes."""
    lending = Pool(partial(connect, backends.database_url, timeout=5), 1)
    yield lending
    await lending.close()


async def waiting(pool: Pool) -> "asyncio.Task[Connection]":
    """Somebody who waits for a connection already."""
    task = asyncio.create_task(pool.take())
    await asyncio.sleep(0)
    return task


async def lends_one(pool: Pool) -> Connection:
    """The one connection is there, works, and is the only one."""
    async with asyncio.timeout(2):
        connection = await pool.take()
        assert await connection.fetchval("SELECT 1") == 1
    second = await waiting(pool)
    await asyncio.sleep(0.02)
    assert not second.done()
    pool.give(connection, sound=True)
    assert await second is connection
    pool.give(connection, sound=True)
    return connection


async def test_who_comes_later_does_not_overtake_who_waits(pool: Pool) -> None:
    served: list[str] = []

    async def use(name: str) -> None:
        connection = await pool.take()
        served.append(name)
        await connection.fetchval("SELECT 1")
        pool.give(connection, sound=True)

    first = await pool.take()
    earlier = [asyncio.create_task(use(name)) for name in ("one", "two")]
    await asyncio.sleep(0)
    pool.give(first, sound=True)
    await use("three")
    await asyncio.gather(*earlier)
    assert served == ["one", "two", "three"]


@pytest.mark.parametrize("sound", [True, False])
async def test_who_leaves_when_it_is_their_turn_takes_no_connection_along(pool: Pool, sound: bool) -> None:
    first = await pool.take()
    leaving = await waiting(pool)
    pool.give(first, sound=sound)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert (await lends_one(pool) is first) == sound


@pytest.mark.parametrize("sound", [True, False])
async def test_who_loses_patience_when_it_is_their_turn_takes_no_connection_along(
    pool: Pool, sound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_PATIENCE", 0.05)
    first = await pool.take()
    leaving = await waiting(pool)
    asyncio.get_running_loop().call_later(0.01, partial(pool.give, first, sound=sound))
    time.sleep(0.1)  # noqa: ASYNC251  their turn and the end of their patience come in the same moment
    with pytest.raises(TimeoutError):
        await leaving
    assert (await lends_one(pool) is first) == sound


async def test_who_has_left_is_passed_over(pool: Pool) -> None:
    first = await pool.take()
    leaving, staying = await waiting(pool), await waiting(pool)
    leaving.cancel()
    await asyncio.wait([leaving])
    pool.give(first, sound=True)
    assert await staying is first
    pool.give(first, sound=True)


async def test_for_a_connection_that_broke_the_next_one_who_waits_makes_another(pool: Pool) -> None:
    broken = await pool.take()
    waiter = await waiting(pool)
    pool.give(broken, sound=False)
    async with asyncio.timeout(5):
        made = await waiter
    assert broken.is_closed()
    assert made is not broken
    assert await made.fetchval("SELECT 1") == 1
    pool.give(made, sound=True)
    assert await lends_one(pool) is made


async def test_who_cannot_make_a_connection_leaves_that_to_the_next(backends: Services) -> None:
    urls = [backends.database_url, "postgresql:///nowhere?host=/nonexistent", backends.database_url]
    pool = Pool(lambda: connect(urls.pop(0), timeout=5), 1)
    broken = await pool.take()
    unlucky, lucky = await waiting(pool), await waiting(pool)
    pool.give(broken, sound=False)
    with pytest.raises(OSError):
        await unlucky
    pool.give(await lucky, sound=True)
    await lends_one(pool)
    await pool.close()
