"""What every conversation store promises, asked of each."""

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from redis.asyncio import Redis

from tertulia.context.limits import ContextLimits
from tertulia.context.memory import MemoryContextStores
from tertulia.context.open import open_stores
from tertulia.context.port import ContextStores, ConversationStore
from tertulia.context.redis import RedisContextStores
from tertulia.core.context import summary
from tertulia.core.model import ContentType, ContextMessage, Owner, Role
from tests.contracts.contexts import (
    ANA,
    NOON,
    REPOS,
    Bench,
    Entry,
    HandClock,
    answered,
    deletions,
    is_there,
    said,
    texts,
)


@pytest.mark.scenario("003", "Create new conversation")
async def test_a_new_conversation_has_a_random_uuid_no_messages_and_its_times(
    store: ConversationStore,
) -> None:
    first, second = await store.create(), await store.create()
    assert UUID(first).version == UUID(second).version == 4
    assert first == str(UUID(first))
    assert first != second
    conversation = await store.get(first)
    assert conversation is not None
    assert conversation.id == first
    assert conversation.messages == ()
    assert conversation.last_seq == 0
    assert conversation.created_at == conversation.updated_at == NOON


async def test_creating_an_existing_conversation_changes_nothing(
    store: ConversationStore, clock: HandClock, log: list[Entry]
) -> None:
    assert await store.create("c1") == "c1"
    await store.add_message("c1", said("hello"))
    clock.advance(minutes=59)
    assert await store.create("c1") == "c1"
    conversation = await store.get("c1")
    assert conversation is not None
    assert conversation.updated_at == NOON
    assert texts(list(conversation.messages)) == ["hello"]
    clock.advance(minutes=1)
    assert not await is_there(store, "c1")
    assert deletions(log) == []


@pytest.mark.scenario("003", "Load existing conversation")
async def test_an_existing_conversation_is_loaded_and_an_unknown_id_is_created_by_its_first_message(
    store: ConversationStore,
) -> None:
    assert await store.get("unknown") is None
    assert await store.get_history("unknown") == []
    await store.add_message("unknown", said("hello"))
    conversation = await store.get("unknown")
    assert conversation is not None
    assert conversation.created_at == NOON
    assert conversation.messages == (said("hello"),)
    await store.add_message("unknown", *(said(str(number)) for number in range(30)))
    assert texts(await store.get_history("unknown")) == [str(number) for number in range(10, 30)]


@pytest.mark.scenario("003", "Update conversation")
async def test_the_twenty_first_message_pushes_out_the_first(
    store: ConversationStore, clock: HandClock
) -> None:
    await store.create("c1")
    for number in range(1, 21):
        clock.advance(seconds=1)
        await store.add_message("c1", said(f"message {number}"))
    assert texts(await store.get_history("c1"))[0] == "message 1"
    await store.add_message("c1", said("message 21"))
    history = texts(await store.get_history("c1"))
    assert len(history) == 20
    assert (history[0], history[-1]) == ("message 2", "message 21")
    conversation = await store.get("c1")
    assert conversation is not None
    assert conversation.created_at == NOON
    assert conversation.updated_at == NOON + timedelta(seconds=20)


@pytest.mark.scenario("003", "Delete conversation")
async def test_a_deleted_conversation_is_gone_and_its_deletion_is_logged_once(
    store: ConversationStore, log: list[Entry]
) -> None:
    await store.add_message("c1", said("hello"))
    await store.delete("c1")
    await store.delete("c1")
    await store.delete("never was")
    assert await store.get("c1") is None
    assert await store.get_history("c1") == []
    assert deletions(log) == [("acme", "ana", "c1", "deleted")]


async def test_a_deleted_conversation_can_begin_again_empty(
    store: ConversationStore, clock: HandClock
) -> None:
    await store.add_message("c1", said("before"))
    await store.delete("c1")
    clock.advance(minutes=1)
    await store.add_message("c1", said("after"))
    conversation = await store.get("c1")
    assert conversation is not None
    assert conversation.created_at == NOON + timedelta(minutes=1)
    assert texts(list(conversation.messages)) == ["after"]


@pytest.mark.scenario("003", "User message format")
async def test_a_users_message_keeps_its_role_text_and_time(store: ConversationStore) -> None:
    time = datetime(2026, 3, 1, 13, 14, 15, 161718, tzinfo=UTC)
    await store.add_message("c1", ContextMessage(Role.USER, "为什么会这样?", time))
    (message,) = await store.get_history("c1")
    assert msgspec.to_builtins(message) == {
        "role": "user",
        "content": "为什么会这样?",
        "timestamp": "2026-03-01T13:14:15.161718Z",
    }


@pytest.mark.scenario("003", "Assistant message format")
async def test_an_assistants_message_keeps_its_structured_data(store: ConversationStore) -> None:
    await store.add_message("c1", answered("**Two** libraries", structured_data=REPOS), answered("No data"))
    with_data, without = await store.get_history("c1")
    assert msgspec.to_builtins(with_data) == {
        "role": "assistant",
        "content": "**Two** libraries",
        "timestamp": "2026-03-01T12:00:00.123456Z",
        "structuredData": {
            "type": "repo_list",
            "data": [{"name": "zustand"}, {"name": "jotai", "stars": 18_000}],
        },
    }
    assert "structuredData" not in msgspec.to_builtins(without)


@pytest.mark.scenario("003", "Message history retrieval")
async def test_history_is_the_last_twenty_of_both_roles_in_order_with_their_data(
    store: ConversationStore,
) -> None:
    for number in range(1, 13):
        await store.add_message("c1", said(f"question {number}", seq=2 * number - 1))
        await store.add_message("c1", answered(f"answer {number}", seq=2 * number, structured_data=REPOS))
    history = await store.get_history("c1")
    assert [message.seq for message in history] == list(range(5, 25))
    assert [message.role for message in history] == [Role.USER, Role.ASSISTANT] * 10
    assert history[-1].structured_data == REPOS
    conversation = await store.get("c1")
    assert conversation is not None
    assert conversation.last_seq == 24


async def test_a_limit_gives_only_the_last_messages(store: ConversationStore) -> None:
    await store.add_message("c1", said("one"), said("two"), said("three"))
    assert texts(await store.get_history("c1", 2)) == ["two", "three"]
    assert texts(await store.get_history("c1", 50)) == ["one", "two", "three"]
    assert await store.get_history("c1", 0) == []
    assert await store.get_history("c1", -1) == []


async def test_messages_added_together_stay_together_and_obey_the_cap(store: ConversationStore) -> None:
    await store.add_message("c1", *(said(str(number)) for number in range(1, 51)))
    assert texts(await store.get_history("c1")) == [str(number) for number in range(31, 51)]


async def test_adding_no_message_is_activity(store: ConversationStore, clock: HandClock) -> None:
    await store.add_message("c1")
    clock.advance(minutes=40)
    await store.add_message("c1")
    clock.advance(minutes=40)
    assert await is_there(store, "c1")
    assert await store.get_history("c1") == []


async def test_cards_and_tool_calls_are_kept_as_they_are(store: ConversationStore) -> None:
    card = ContextMessage(
        Role.SYSTEM, {"title": "延迟 ⚠️", "impact": None}, NOON, content_type=ContentType.BRIEFING_CARD, seq=7
    )
    await store.add_message("c1", card)
    assert await store.get_history("c1") == [card]


async def test_changing_a_message_afterwards_does_not_change_what_is_kept(store: ConversationStore) -> None:
    data: dict[str, Any] = {"type": "repo_list", "data": ["zustand"]}
    await store.add_message("c1", answered("here", structured_data=data))
    data["data"].append("intruder")
    (message,) = await store.get_history("c1")
    assert message.structured_data == {"type": "repo_list", "data": ["zustand"]}


async def test_a_message_that_cannot_be_kept_leaves_no_trace(store: ConversationStore) -> None:
    with pytest.raises(TypeError):
        await store.add_message("c1", said("fine"), answered("not fine", structured_data={"type": object()}))
    assert await store.get("c1") is None


@pytest.mark.parametrize(
    "other", [Owner("acme", "bob"), Owner("globex", "ana"), Owner("acme/ana", ""), Owner("", "acme/ana")]
)
async def test_nobody_sees_another_owners_conversation_of_the_same_id(
    stores: ContextStores, other: Owner
) -> None:
    mine, theirs = stores.open(ANA), stores.open(other)
    await mine.add_message("c1", said("mine"))
    assert await theirs.get("c1") is None
    await theirs.add_message("c1", said("theirs"))
    await theirs.delete("ana/c1")
    assert texts(await mine.get_history("c1")) == ["mine"]
    await theirs.delete("c1")
    assert texts(await mine.get_history("c1")) == ["mine"]


async def test_names_with_any_characters_are_logged_as_they_are(
    stores: ContextStores, log: list[Entry]
) -> None:
    store = stores.open(Owner("a/b {c}", "用户:1"))
    await store.add_message("id %2F/*", said("hello"))
    await store.delete("id %2F/*")
    assert deletions(log) == [("a/b {c}", "用户:1", "id %2F/*", "deleted")]


async def test_two_stores_of_one_owner_are_the_same_conversations(stores: ContextStores) -> None:
    await stores.open(ANA).add_message("c1", said("hello"))
    assert texts(await stores.open(Owner("acme", "ana")).get_history("c1")) == ["hello"]


@pytest.mark.scenario("003", "Handle concurrent access")
async def test_a_hundred_messages_at_once_lose_nothing_and_keep_each_writers_order(bench: Bench) -> None:
    store = bench.stores(messages=100).open(ANA)

    async def write(writer: int) -> None:
        for number in range(10):
            await store.add_message("c1", said(f"{writer}:{number}"))

    await asyncio.gather(*(write(writer) for writer in range(10)))
    history = [str(text) for text in texts(await store.get_history("c1"))]
    assert len(history) == len(set(history)) == 100
    for writer in range(10):
        assert [text for text in history if text.startswith(f"{writer}:")] == [
            f"{writer}:{n}" for n in range(10)
        ]


async def test_a_hundred_messages_at_once_leave_exactly_the_last_twenty(store: ConversationStore) -> None:
    await asyncio.gather(*(store.add_message("c1", said(f"{n} a"), said(f"{n} b")) for n in range(50)))
    history = [str(text) for text in texts(await store.get_history("c1"))]
    assert len(history) == len(set(history)) == 20
    for first, second in zip(history[::2], history[1::2], strict=True):
        assert first.removesuffix(" a") == second.removesuffix(" b")


async def test_creating_at_once_never_exceeds_the_cap(bench: Bench, log: list[Entry]) -> None:
    store = bench.stores(conversations=10).open(ANA)
    names = await asyncio.gather(*(store.create() for _ in range(50)))
    assert sum([await is_there(store, name) for name in names]) == 10
    assert len(deletions(log)) == 40


def test_a_conversation_store_has_five_methods() -> None:
    names = {name for name in vars(ConversationStore) if not name.startswith("_")}
    assert names == {"create", "get", "add_message", "get_history", "delete"}


@pytest.mark.scenario("003", "Implement ConversationStore interface")
@pytest.mark.parametrize("name", ["create", "get", "add_message", "get_history", "delete"])
def test_every_store_is_a_conversation_store(store: ConversationStore, name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(store, name))


async def coordinate(store: ConversationStore) -> str:
    """What a coordinator does with a store, whichever it is."""
    conversation = await store.create()
    await store.add_message(conversation, said("find React libraries"))
    await store.add_message(conversation, answered("I found two.", structured_data=REPOS))
    await store.add_message(conversation, said("analyze the second one"))
    return summary(await store.get_history(conversation))


@pytest.mark.scenario("003", "Enable implementation swap")
async def test_the_same_coordinator_works_with_either_store(valkey: Redis) -> None:
    private = MemoryContextStores(ContextLimits())
    shared = RedisContextStores(ContextLimits(), valkey)
    seen = [await coordinate(stores.open(ANA)) for stores in (private, shared)]
    assert seen[0] == seen[1]
    assert seen[0].splitlines() == [
        "Previous: repo_list",
        "user: find React libraries",
        "assistant: I found two.",
        "user: analyze the second one",
    ]


def test_redis_without_a_client_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a client"):
        open_stores("redis", ContextLimits())
