"""The context in Redis or Valkey: shared by all processes, with the same limits over all of them."""

from typing import cast
from urllib.parse import quote, unquote

from redis.asyncio import Redis

from tertulia import ids
from tertulia.clock import now
from tertulia.context.codec import decode, encode
from tertulia.context.journal import Journal, Name, Reason
from tertulia.context.limits import Clock, ContextLimits
from tertulia.context.scripts import Argument, Scripts, moment
from tertulia.core.model import ContextConversation, ContextMessage, Owner

SWEEP_BATCH = 100

Text = str | bytes
Gone = list[tuple[Name, Reason]]


class RedisConversationStore:
    """The conversations of one owner, each call one round trip."""

    def __init__(self, stores: "RedisContextStores", owner: Owner) -> None:
        self._stores = stores
        self._prefix = _prefix(owner)

    async def create(self, conversation_id: str | None = None) -> str:
        made = str(ids.conversation_id()) if conversation_id is None else conversation_id
        await self._stores.add(self._name(made), "create", 0)
        return made

    async def get(self, conversation_id: str) -> ContextConversation | None:
        found = await self._stores.read(self._name(conversation_id), 0)
        if found is None:
            return None
        created, updated, messages = found
        return ContextConversation(
            conversation_id, moment(created), moment(updated), tuple(decode(text) for text in messages)
        )

    async def add_message(
        self, conversation_id: str, *messages: ContextMessage, after: int | None = None
    ) -> None:
        mode = "append" if after is None else str(after)
        newest = max((message.seq for message in messages), default=0)
        await self._stores.add(self._name(conversation_id), mode, newest, *map(encode, messages))

    async def get_history(self, conversation_id: str, limit: int | None = None) -> list[ContextMessage]:
        if limit is not None and limit <= 0:
            return []
        found = await self._stores.read(self._name(conversation_id), -limit if limit else 0)
        return [decode(text) for text in found[2]] if found else []

    async def delete(self, conversation_id: str) -> None:
        await self._stores.remove(self._name(conversation_id))

    def _name(self, conversation_id: str) -> str:
        return self._prefix + quote(conversation_id, safe="")


class RedisContextStores:
    """The stores of all owners on one client, which belongs to the caller and stays open."""

    def __init__(self, limits: ContextLimits, client: "Redis", clock: Clock = now) -> None:
        self._limits = limits
        self._ttl = round(limits.ttl * 1_000_000)
        self._clock = clock
        self._scripts = Scripts(client)
        self._journal = Journal("redis", limits.memory_warning)

    def open(self, owner: Owner) -> RedisConversationStore:
        return RedisConversationStore(self, owner)

    async def sweep(self) -> int:
        swept = 0
        while batch := len(await self._change("sweep", SWEEP_BATCH)):
            swept += batch
        return swept

    async def report(self) -> None:
        count, size, _ = await self._run("sweep", 0)
        self._journal.report(count, size)

    async def close(self) -> None:
        """Nothing is held here: the client is the caller's, the conversations are the server's."""

    async def add(self, name: str, mode: str, newest: int, *texts: bytes) -> None:
        """Run the script that creates and appends."""
        limits = (self._ttl, self._limits.messages, self._limits.conversations)
        await self._change("add", name, *limits, mode, newest, *texts)

    async def read(self, name: str, start: int) -> tuple[Text, Text, list[Text]] | None:
        """When it was created and updated, and its messages from `start` on, or None."""
        found = await self._scripts.run("read", self._clock(), name, start)
        return cast("tuple[Text, Text, list[Text]] | None", found)

    async def remove(self, name: str) -> None:
        await self._change("delete", name)

    async def _change(self, script: str, *arguments: Argument) -> Gone:
        """Run a script that changes something, and log what it did."""
        count, size, gone = await self._run(script, *arguments)
        self._journal.removed(gone)
        self._journal.counted(count, size)
        return gone

    async def _run(self, script: str, *arguments: Argument) -> tuple[int, int, Gone]:
        reply = await self._scripts.run(script, self._clock(), *arguments)
        count, size, gone = cast("tuple[int, int, list[tuple[Text, Text]]]", reply)
        return count, size, [(_parsed(_text(name)), Reason(_text(reason))) for name, reason in gone]


def _text(reply: Text) -> str:
    return reply if isinstance(reply, str) else reply.decode()


def _prefix(owner: Owner) -> str:
    return f"{quote(owner.tenant, safe='')}/{quote(owner.user, safe='')}/"


def _parsed(name: str) -> Name:
    tenant, user, conversation = map(unquote, name.split("/"))
    return Name(Owner(tenant, user), conversation)
