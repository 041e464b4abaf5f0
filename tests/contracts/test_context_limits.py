"""How every context store keeps its limits, and what it says about that in the log."""

import pytest

from tertulia.context.limits import ContextLimits
from tertulia.context.port import ContextStores, ConversationStore
from tertulia.core.model import Owner
from tests.contracts.contexts import (
    ANA,
    Bench,
    Entry,
    HandClock,
    deletions,
    is_there,
    said,
    texts,
    warnings,
)


@pytest.mark.scenario("003", "Schedule cleanup on creation")
async def test_a_conversation_nobody_touches_is_deleted_after_an_hour(
    stores: ContextStores, store: ConversationStore, clock: HandClock, log: list[Entry]
) -> None:
    await store.create("c1")
    clock.advance(milliseconds=3_599_999)
    assert await stores.sweep() == 0
    assert await is_there(store, "c1")
    clock.advance(milliseconds=1)
    assert await stores.sweep() == 1
    assert not await is_there(store, "c1")
    assert await stores.sweep() == 0
    assert deletions(log) == [("acme", "ana", "c1", "expired")]


@pytest.mark.scenario("003", "Reset cleanup timer on activity")
async def test_a_message_starts_the_hour_again(
    stores: ContextStores, store: ConversationStore, clock: HandClock, log: list[Entry]
) -> None:
    await store.create("active")
    await store.create("idle")
    clock.advance(minutes=40)
    await store.add_message("active", said("still here"))
    clock.advance(minutes=40)
    assert await stores.sweep() == 1
    assert await is_there(store, "active")
    clock.advance(minutes=20)
    assert await stores.sweep() == 1
    assert deletions(log) == [("acme", "ana", "idle", "expired"), ("acme", "ana", "active", "expired")]


async def test_reading_does_not_keep_a_conversation_alive(store: ConversationStore, clock: HandClock) -> None:
    await store.create("c1")
    clock.advance(minutes=59)
    await store.get("c1")
    await store.get_history("c1")
    clock.advance(minutes=1)
    assert not await is_there(store, "c1")


async def test_what_has_expired_reads_as_absent_before_the_sweep(
    store: ConversationStore, clock: HandClock, log: list[Entry]
) -> None:
    await store.add_message("c1", said("old"))
    clock.advance(hours=1)
    assert await store.get("c1") is None
    assert await store.get_history("c1") == []
    assert deletions(log) == []


async def test_what_has_expired_begins_empty_and_the_old_one_is_logged(
    store: ConversationStore, clock: HandClock, log: list[Entry]
) -> None:
    for conversation in ("added", "created", "deleted"):
        await store.add_message(conversation, said("old"))
    clock.advance(hours=1)
    await store.add_message("added", said("new"))
    await store.create("created")
    await store.delete("deleted")
    assert texts(await store.get_history("added")) == ["new"]
    assert await store.get_history("created") == []
    assert [(name, reason) for _, _, name, reason in deletions(log)] == [
        ("added", "expired"),
        ("created", "expired"),
        ("deleted", "expired"),
    ]


async def test_a_sweep_deletes_everything_that_has_expired_however_much(
    bench: Bench, log: list[Entry]
) -> None:
    stores = bench.stores()
    store = stores.open(ANA)
    for number in range(250):
        await store.create(f"c{number}")
    bench.clock.advance(hours=1)
    await store.create("young")
    assert await stores.sweep() == 250
    assert len(deletions(log)) == 250
    assert await is_there(store, "young")


@pytest.mark.scenario("003", "Enforce max conversation limit")
async def test_the_thousand_and_first_conversation_evicts_the_oldest_with_a_warning(
    store: ConversationStore, clock: HandClock, log: list[Entry]
) -> None:
    for number in range(1, 1001):
        clock.advance(seconds=1)
        await store.create(f"c{number}")
    await store.add_message("c1", said("the oldest by creation, the latest by activity"))
    assert deletions(log) == []
    assert warnings(log, "context_full") == []
    await store.create("c1001")
    assert deletions(log) == [("acme", "ana", "c1", "evicted")]
    assert [entry["evicted"] for entry in warnings(log, "context_full")] == [1]
    assert not await is_there(store, "c1")
    assert await is_there(store, "c2")
    assert await is_there(store, "c1001")


async def test_the_cap_counts_all_users_and_tenants_together(bench: Bench, log: list[Entry]) -> None:
    stores = bench.stores(conversations=2)
    for tenant in ("one", "two", "three"):
        bench.clock.advance(seconds=1)
        await stores.open(Owner(tenant, "ana")).add_message("c", said("hello"))
    assert deletions(log) == [("one", "ana", "c", "evicted")]


async def test_what_has_expired_makes_room_before_anything_is_evicted(bench: Bench, log: list[Entry]) -> None:
    store = bench.stores(conversations=2).open(ANA)
    await store.create("oldest, but active")
    await store.create("idle")
    bench.clock.advance(minutes=30)
    await store.add_message("oldest, but active", said("hello"))
    bench.clock.advance(minutes=30)
    await store.create("new")
    assert deletions(log) == [("acme", "ana", "idle", "expired")]
    assert warnings(log, "context_full") == []


async def test_the_new_conversation_stays_even_where_all_have_the_same_age(bench: Bench) -> None:
    store = bench.stores(conversations=2).open(ANA)
    for name in ("z", "y", "a"):
        await store.create(name)
    assert await is_there(store, "a")


@pytest.mark.scenario("003", "Monitor memory usage")
async def test_the_count_and_memory_are_logged_when_the_count_changes(
    store: ConversationStore, log: list[Entry]
) -> None:
    await store.add_message("c1", said("hello"))
    await store.add_message("c1", said("hello again"))
    await store.create("c2")
    await store.delete("c1")
    counts = [entry for entry in log if entry["event"] == "context_counted"]
    assert [entry["conversations"] for entry in counts] == [1, 2, 1]
    assert all(entry["memory_bytes"] > 0 for entry in counts)
    assert warnings(log, "context_memory_high") == []


async def test_the_default_limits_are_those_of_the_specification() -> None:
    assert ContextLimits() == ContextLimits(20, 3600.0, 1000, 104_857_600)


@pytest.mark.scenario("003", "Monitor memory usage")
async def test_passing_the_memory_limit_warns_once_and_again_only_after_it_was_calm(
    bench: Bench, log: list[Entry]
) -> None:
    store = bench.stores(messages=2, memory_warning=50_000).open(ANA)
    await store.add_message("c1", said("x" * 20_000))
    assert warnings(log, "context_memory_high") == []
    for _ in range(5):
        await store.add_message("c1", said("x" * 30_000))
    assert len(warnings(log, "context_memory_high")) == 1
    await store.delete("c1")
    await store.add_message("c1", said("x" * 60_000))
    assert len(warnings(log, "context_memory_high")) == 2


async def test_a_report_says_where_how_many_and_how_much(bench: Bench, log: list[Entry]) -> None:
    stores = bench.stores(memory_warning=50_000)
    store = stores.open(ANA)
    await store.add_message("c1", *(said("x" * 1000) for _ in range(40)))
    await stores.report()
    (report,) = [entry for entry in log if entry["event"] == "context_report"]
    assert report["storage"] == {"memory": "in-memory", "redis": "redis"}[bench.mode]
    assert report["conversations"] == 1
    assert 20_000 < report["memory_bytes"] < 25_000
    assert warnings(log, "context_memory_high") == []


async def test_a_report_above_the_limit_warns_each_time(bench: Bench, log: list[Entry]) -> None:
    stores = bench.stores(memory_warning=1000)
    await stores.open(ANA).add_message("c1", said("hello"))
    log.clear()
    await stores.report()
    await stores.report()
    assert len(warnings(log, "context_memory_high")) == 2


async def test_the_estimate_comes_back_to_nothing_when_all_is_gone(bench: Bench, log: list[Entry]) -> None:
    stores = bench.stores(messages=3, conversations=2)
    store = stores.open(ANA)
    for number in range(8):
        bench.clock.advance(minutes=10)
        await store.add_message(f"c{number % 4}", *(said("x" * number) for _ in range(number)))
    await store.delete("c3")
    bench.clock.advance(hours=1)
    await stores.sweep()
    await stores.report()
    assert [entry["memory_bytes"] for entry in log if entry["event"] == "context_report"] == [0]


@pytest.mark.scenario("003", "Initialize storage")
async def test_a_store_starts_empty_and_says_its_mode(bench: Bench, log: list[Entry]) -> None:
    stores = bench.stores()
    opened = [entry["storage"] for entry in log if entry["event"] == "context_opened"]
    assert opened == {"memory": ["in-memory"], "redis": ["redis"]}[bench.mode]
    await stores.report()
    assert [entry["conversations"] for entry in log if entry["event"] == "context_report"] == [0]
