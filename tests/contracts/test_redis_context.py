"""What only the context in Redis promises."""

from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tertulia.context.limits import ContextLimits
from tertulia.context.port import ConversationStore
from tertulia.context.redis import RedisContextStores
from tertulia.core.errors import Unavailable
from tertulia.core.model import Owner
from tests.contracts.conftest import CONTEXT_DATABASE
from tests.contracts.contexts import ANA, is_there, said, texts


def open_store(client: Redis, owner: Owner = ANA, **limits: int) -> ConversationStore:
    return RedisContextStores(ContextLimits(**limits), client).open(owner)


async def test_all_keys_share_one_hash_tag_and_none_expires_in_silence(valkey: Redis) -> None:
    await open_store(valkey, Owner("{a}", "b")).add_message("c1", said("hello"))
    keys = sorted(await valkey.keys("*"))
    assert keys == [
        b"tertulia:{ctx}:births",
        b"tertulia:{ctx}:conversation:%7Ba%7D/b/c1",
        b"tertulia:{ctx}:deadlines",
        b"tertulia:{ctx}:messages:%7Ba%7D/b/c1",
        b"tertulia:{ctx}:size",
    ]
    assert [await valkey.ttl(key) for key in keys] == [-1, -1, -1, -1, -1]


async def test_a_deleted_conversation_leaves_no_key_of_its_own(valkey: Redis) -> None:
    store = open_store(valkey)
    await store.add_message("c1", said("hello"))
    await store.delete("c1")
    assert await valkey.keys("*") == [b"tertulia:{ctx}:size"]
    assert await valkey.get("tertulia:{ctx}:size") == b"0"


async def test_two_processes_share_the_conversations_and_the_limits(valkey: Redis, valkey_url: str) -> None:
    async with Redis.from_url(valkey_url, db=CONTEXT_DATABASE, decode_responses=True) as other:
        here, there = open_store(valkey, conversations=1), open_store(other, conversations=1)
        await here.add_message("c1", said("hello"))
        assert texts(await there.get_history("c1")) == ["hello"]
        await there.create("c2")
        assert not await is_there(here, "c1")


async def test_a_server_that_forgot_its_scripts_is_told_again(valkey: Redis) -> None:
    store = open_store(valkey)
    await store.create("c1")
    await valkey.script_flush()
    await store.add_message("c1", said("hello"))
    assert texts(await store.get_history("c1")) == ["hello"]


async def test_adding_a_message_is_one_command(valkey: Redis) -> None:
    store = open_store(valkey)
    await store.create("c1")
    await valkey.config_resetstat()
    await store.add_message("c1", said("one"), said("two"))
    calls = {name: stat["calls"] for name, stat in (await valkey.info("commandstats")).items()}
    assert calls["cmdstat_evalsha"] == 1
    assert "cmdstat_eval" not in calls


async def test_a_server_that_cannot_be_reached_is_unavailable_for_now(tmp_path: Path) -> None:
    async with Redis(unix_socket_path=str(tmp_path / "nothing"), retry=Retry(NoBackoff(), 0)) as client:
        with pytest.raises(Unavailable) as caught:
            await open_store(client).create()
    assert caught.value.temporary
    assert caught.value.__cause__ is not None
