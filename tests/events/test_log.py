"""The event log itself: places, generations, epochs, bounds."""

from collections.abc import AsyncIterator

import pytest

from tertulia.embedded import Services
from tertulia.events.log import SCRIPTS, Cursor, EventLog, place_of
from tertulia.valkey import Pipeline, Valkey, connect

EVENT = b'{"type":"x"}'


@pytest.fixture
async def valkey(backends: Services) -> AsyncIterator[Valkey]:
    client = connect(backends.redis_url)
    for key in ("head", "events", "once:end"):
        await client.execute_command("DEL", f"log:{key}")
    yield client
    await client.aclose()


@pytest.fixture
async def log(valkey: Valkey) -> AsyncIterator[EventLog]:
    pipeline = Pipeline(valkey, *SCRIPTS)
    yield EventLog(pipeline, 1000, size=10_000)
    await pipeline.close()


async def appended(log: EventLog, number: int = 1) -> Cursor:
    place = place_of(await log.begin("log", [EVENT] * number))
    assert place is not None
    return place


async def test_offsets_are_dense_and_a_cursor_gives_what_came_after_it(log: EventLog) -> None:
    first = await appended(log, 3)
    last = await appended(log, 2)
    assert (first.offset, last.offset) == (3, 5)
    backlog = await log.read("log", first)
    assert (backlog.first, backlog.events, backlog.gap) == (4, [EVENT, EVENT], False)


async def test_a_redis_that_came_back_to_an_older_state_of_itself_begins_a_new_log(
    log: EventLog, valkey: Valkey
) -> None:
    seen = await appended(log, 3)
    # As after a restart from a snapshot: the log is shorter than it was, and the server lives another life.
    await valkey.execute_command("HSET", "log:head", "off", 1, "life", "the one before")
    assert (await log.read("log", Cursor(seen.generation, 1))).gap
    again = await appended(log)
    assert again.generation != seen.generation
    assert again.offset == 1
    assert (await log.read("log", seen)).gap


async def test_the_first_append_after_that_begins_a_new_log_too(log: EventLog, valkey: Valkey) -> None:
    seen = await appended(log, 3)
    await valkey.execute_command("HSET", "log:head", "off", 1, "life", "the one before")
    again = await appended(log)
    assert (again.generation != seen.generation, again.offset) == (True, 1)
    assert (await log.read("log", Cursor(again.generation, 0))).events == [EVENT]


async def test_an_end_is_taken_once_under_any_epoch_and_no_older_words_after_it(log: EventLog) -> None:
    assert await log.append("log", [EVENT], epoch=1)
    assert place_of(await log.begin("log", [b"end"], "end", epoch=2)) is not None
    assert place_of(await log.begin("log", [b"end"], "end", epoch=2)) is None
    assert not await log.append("log", [b"late"], epoch=1)
    assert await log.append("log", [b"next"], epoch=3)
    assert (await log.read("log", Cursor((await log.read("log", None)).generation, 0))).events == [
        EVENT, b"end", b"next",
    ]  # fmt: skip


async def test_an_end_that_comes_late_does_not_let_older_words_in_again(log: EventLog) -> None:
    assert await log.append("log", [EVENT], epoch=5)
    assert place_of(await log.begin("log", [b"end"], "end", epoch=4)) is not None
    assert not await log.append("log", [b"late"], epoch=4)


async def test_an_erased_log_is_empty_and_takes_no_words_of_before(log: EventLog, valkey: Valkey) -> None:
    seen = await appended(log, 3)
    await log.erase("log")
    assert not await log.append("log", [b"words of the erased"], epoch=10**12)
    assert await valkey.execute_command("EXISTS", "log:events") == 0
    assert (await log.read("log", seen)).gap


async def test_a_log_holds_no_more_bytes_than_it_may_and_says_what_is_gone(
    log: EventLog, valkey: Valkey
) -> None:
    last = await appended(log)
    for _ in range(50):
        last = place_of(await log.begin("log", [b"x" * 1000])) or last
        held = await valkey.execute_command("XLEN", "log:events")
        assert held * 1000 <= 11_000
    assert held >= 5
    assert (await log.read("log", Cursor(last.generation, 1))).gap
    assert len((await log.read("log", Cursor(last.generation, last.offset - 4))).events) == 4
