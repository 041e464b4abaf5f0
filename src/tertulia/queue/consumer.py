"""Reading wake-ups as one consumer of the group; an entry stays pending until its message has been answered."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from redis.exceptions import ResponseError

from tertulia.core.model import Owner
from tertulia.queue.publisher import GROUP, STREAM
from tertulia.valkey import Pipeline, Valkey


class Wakeup(NamedTuple):
    """An entry of the stream: this conversation has a message that waits."""

    entry: str
    owner: Owner
    conversation: UUID
    message: UUID


class Consumer:
    """One process's name in the consumer group.

    `blocking` is a client whose socket timeout is longer than the time we block for.
    """

    def __init__(self, blocking: Valkey, pipeline: Pipeline, name: str) -> None:
        self._blocking = blocking
        self._pipeline = pipeline
        self._name = name

    async def read(self, count: int, block: float) -> list[Wakeup]:
        """New entries, at most `count`, after waiting for at most `block` seconds."""
        answer = await self._in_group(
            "XREADGROUP",
            "GROUP",
            GROUP,
            self._name,
            "COUNT",
            count,
            "BLOCK",
            int(block * 1000),
            "STREAMS",
            STREAM,
            ">",
        )
        return self._wakeups(_entries(answer))

    async def claim(self, idle: float, count: int) -> list[Wakeup]:
        """Entries that a consumer took and left alone for `idle` seconds: it is probably dead."""
        answer = await self._in_group(
            "XAUTOCLAIM", STREAM, GROUP, self._name, int(idle * 1000), "0-0", "COUNT", count
        )
        return self._wakeups(answer[1])

    def done(self, entries: Iterable[str]) -> None:
        """The messages of these entries have been answered."""
        names = list(entries)
        if names:
            self._pipeline.post("XACK", STREAM, GROUP, *names)
            self._pipeline.post("XDEL", STREAM, *names)

    async def undelivered(self) -> bool:
        """Whether the stream holds entries that no worker has taken yet."""
        await self._in_group("XPENDING", STREAM, GROUP)
        stream, groups = await asyncio.gather(
            self._pipeline.call("XINFO", "STREAM", STREAM), self._pipeline.call("XINFO", "GROUPS", STREAM)
        )
        newest = _fields(stream)[b"last-generated-id"]
        return any(
            group[b"last-delivered-id"] != newest
            for group in map(_fields, groups)
            if group[b"name"] == GROUP.encode()
        )

    async def leave(self) -> None:
        """Take the name out of the group, but only when nothing would be dropped with it."""
        # (redis-py cannot read what XPENDING answers for one consumer.)
        consumers = map(_fields, await self._in_group("XINFO", "CONSUMERS", STREAM, GROUP))
        pending = [each[b"pending"] for each in consumers if each[b"name"] == self._name.encode()]
        if pending == [0]:
            await self._blocking.execute_command("XGROUP", "DELCONSUMER", STREAM, GROUP, self._name)

    def _wakeups(self, entries: list[Any]) -> list[Wakeup]:
        """Well-formed entries; others (and those deleted meanwhile) are put away."""
        found: list[Wakeup] = []
        for entry in entries:
            if entry is None or entry[0] is None:  # Redis 6.2: claimed, but deleted from the stream before
                continue
            try:
                found.append(_wakeup(entry[0], _fields(entry[1])))
            except (KeyError, ValueError, TypeError):
                self.done([entry[0].decode()])
        return found

    async def _in_group(self, *command: str | int) -> Any:
        """Run a command of the group, making group and stream when they are new or were flushed away."""
        try:
            return await self._blocking.execute_command(*command)
        except ResponseError as error:
            if "NOGROUP" not in str(error) and "no such key" not in str(error):
                raise
        try:
            await self._blocking.execute_command("XGROUP", "CREATE", STREAM, GROUP, "0", "MKSTREAM")
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        return await self._blocking.execute_command(*command)


def _entries(answer: Any) -> list[Any]:
    """The entries of the one stream we read; redis-py answers with a dictionary or a list, by its protocol."""
    if not answer:
        return []
    streams: list[Any] = list(answer.values() if hasattr(answer, "values") else [pair[1] for pair in answer])
    return [entry for entries in streams for entry in entries]


def _fields(flat: Any) -> dict[bytes, Any]:
    pairs: list[tuple[Any, Any]] = (
        list(flat.items()) if hasattr(flat, "items") else list(zip(flat[::2], flat[1::2], strict=True))
    )
    return {name if isinstance(name, bytes) else name.encode(): value for name, value in pairs}


def _wakeup(entry: bytes, fields: dict[bytes, Any]) -> Wakeup:
    owner = Owner(fields[b"tenant_id"].decode(), fields[b"user_id"].decode())
    if "\x00" in "".join(owner):
        raise ValueError("no tenant or user has such a name")
    return Wakeup(
        entry.decode(),
        owner,
        UUID(fields[b"conversation_id"].decode()),
        UUID(fields[b"message_id"].decode()),
    )
