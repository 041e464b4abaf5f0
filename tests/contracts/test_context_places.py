"""How every context store keeps to places in the log: what would leave a gap is forgotten instead."""

import asyncio

import pytest

from tertulia.context.port import ConversationStore
from tests.contracts.contexts import ANA, Bench, Entry, HandClock, answered, deletions, said, texts


async def test_what_belongs_after_a_place_is_appended_where_the_conversation_ends_there(
    store: ConversationStore, clock: HandClock
) -> None:
    await store.add_message("c1", said("one", seq=1), answered("two", seq=4))
    clock.advance(minutes=59)
    await store.add_message("c1", said("three", seq=5), answered("four", seq=7), after=4)
    clock.advance(minutes=59)
    assert texts(await store.get_history("c1")) == ["one", "two", "three", "four"]
    await store.add_message("c1", said("five", seq=8), after=7)
    conversation = await store.get("c1")
    assert conversation is not None
    assert conversation.last_seq == 8


@pytest.mark.parametrize("after", [0, 3, 5, 2**53 - 1])
async def test_a_conversation_that_ends_elsewhere_is_forgotten_rather_than_given_a_gap(
    after: int, store: ConversationStore, log: list[Entry]
) -> None:
    await store.add_message("c1", said("one", seq=1), answered("two", seq=4))
    await store.add_message("c1", said("three", seq=after + 1), after=after)
    assert await store.get("c1") is None
    assert await store.get_history("c1") == []
    assert deletions(log) == [("acme", "ana", "c1", "deleted")]


async def test_the_end_is_the_furthest_place_and_stays_when_the_oldest_messages_give_way(
    bench: Bench,
) -> None:
    store = bench.stores(messages=2).open(ANA)
    await store.add_message("c1", said("one", seq=1), answered("two", seq=9), said("late", seq=3))
    await store.add_message("c1", said("three", seq=10), after=9)
    assert texts(await store.get_history("c1")) == ["late", "three"]
    await store.add_message("c1", after=10)
    assert texts(await store.get_history("c1")) == ["late", "three"]


async def test_the_first_message_of_all_makes_the_conversation(
    store: ConversationStore, log: list[Entry]
) -> None:
    await store.add_message("new", said("one", seq=1), answered("two", seq=2), after=0)
    await store.create("empty")
    await store.add_message("empty", said("one", seq=1), after=0)
    assert texts(await store.get_history("new")) == ["one", "two"]
    assert texts(await store.get_history("empty")) == ["one"]
    assert deletions(log) == []


async def test_what_belongs_after_a_place_in_an_absent_conversation_is_passed_over(
    store: ConversationStore, clock: HandClock, log: list[Entry]
) -> None:
    await store.add_message("never was", said("five", seq=5), after=4)
    assert await store.get("never was") is None
    assert deletions(log) == []
    await store.add_message("expired", said("one", seq=4))
    clock.advance(hours=1)
    await store.add_message("expired", said("five", seq=5), after=4)
    assert await store.get("expired") is None
    assert deletions(log) == [("acme", "ana", "expired", "expired")]
    await store.add_message("expired", said("one", seq=1), after=0)
    assert texts(await store.get_history("expired")) == ["one"]


async def test_of_two_who_add_after_the_same_place_at_once_none_leaves_a_gap(
    store: ConversationStore,
) -> None:
    await store.add_message("c1", said("one", seq=1))
    await asyncio.gather(*(store.add_message("c1", said("two", seq=2), after=1) for _ in range(2)))
    assert await store.get("c1") is None
