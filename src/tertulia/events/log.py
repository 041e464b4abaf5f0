"""The event log: dense offsets within a random generation, so that a flush, a trim or a wrong cursor is seen."""

import asyncio
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

from tertulia import ids
from tertulia.core.events import type_of
from tertulia.core.model import Owner
from tertulia.valkey import Pipeline, Script

APPEND = Script(files("tertulia.events").joinpath("append.lua").read_text("utf-8"))
HEAD = Script(files("tertulia.events").joinpath("head.lua").read_text("utf-8"))
ERASE = Script(files("tertulia.events").joinpath("erase.lua").read_text("utf-8"))
SCRIPTS = (APPEND, HEAD, ERASE)
_DAY = 86_400
_HOUR = 3600
_PAGE = 50  # events at a time: one may be as long as the longest answer


class Cursor(NamedTuple):
    """A place in a log, written `generation.offset`: everything up to it has been seen."""

    generation: str
    offset: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        """The cursor, or None for text that never was one."""
        generation, dot, offset = text.partition(".")
        if (
            not dot
            or not generation.isalnum()
            or not (offset.isascii() and offset.isdigit() and len(offset) < 16)
        ):
            return None
        return cls(generation, int(offset))


def place_of(reply: Any) -> Cursor | None:
    """Where the last event of an append is, as the append's reply tells; None if it was appended before."""
    return Cursor(reply[0].decode(), int(reply[1])) if reply[2] else None


class Backlog(NamedTuple):
    """What a log holds after a cursor. `gap` says that something between is gone or the cursor is not of this log."""

    generation: str
    first: int
    events: list[bytes]
    tail: int
    gap: bool


def session_log(tenant: str, conversation: UUID) -> str:
    return f"tertulia:{{c:{quote(tenant, safe='')}:{conversation}}}"


def user_log(owner: Owner) -> str:
    return f"tertulia:{{u:{quote(owner.tenant, safe='')}:{quote(owner.user, safe='')}}}"


class EventLog:
    """Appends to logs and reads them back: by a pipeline of its own, if given, since what is read may be large.

    A log keeps about `keep` events, and between a half of `size` bytes and all.
    """

    def __init__(
        self, pipeline: Pipeline, keep: int, reading: Pipeline | None = None, *, size: int = 8_000_000
    ) -> None:
        self._pipeline = pipeline
        self._reading = reading or pipeline
        self._keep = keep
        self._size = size

    async def append(self, log: str, events: Sequence[bytes], *, epoch: int = 0) -> bool:
        """Append and publish in one step. False: a newer epoch has written, so the writer's lease is lost."""
        return await self._pipeline.call(*self._append(log, events, epoch, None)) is not None

    def begin(
        self, log: str, events: Sequence[bytes], once: str | None = None, *, epoch: int = 0
    ) -> "asyncio.Future[Any]":
        """Append; a second append under the same name does nothing. The future tells where (`place_of`) or fails.

        What is appended under a name is never refused, but what comes later under a lower epoch is.
        """
        return self._pipeline.begin(*self._append(log, events, epoch, once))

    def post(self, log: str, events: Sequence[bytes], once: str | None = None) -> None:
        """Append without waiting: for events whose truth is in the database and whose loss is seen there."""
        self._pipeline.post(*self._append(log, events, 0, once))

    def _append(
        self, log: str, events: Sequence[bytes], epoch: int, once: str | None
    ) -> tuple[bytes | str | int, ...]:
        keys = [f"{log}:head", f"{log}:events"] + ([f"{log}:once:{once}"] if once else [])
        return APPEND.call(
            keys, epoch, ids.generation(), self._keep, self._size, _DAY, f"{log}:live", *events
        )

    async def read(self, log: str, after: Cursor | None) -> Backlog:
        """A page of what came after the cursor; without a cursor, only where the log ends."""
        generation, tail = await self._head(log)
        if after is None:
            return Backlog(generation, tail + 1, [], tail, gap=False)
        if after.generation != generation or after.offset > tail:
            return Backlog(generation, tail + 1, [], tail, gap=True)
        if after.offset == tail:
            return Backlog(generation, tail + 1, [], tail, gap=False)
        entries = await self._reading.call(
            "XRANGE", f"{log}:events", f"{after.offset + 1}-0", "+", "COUNT", _PAGE
        )
        if not entries or int(entries[0][0].split(b"-")[0]) != after.offset + 1:
            return Backlog(generation, tail + 1, [], tail, gap=True)
        return Backlog(generation, after.offset + 1, [fields[1] for _, fields in entries], tail, gap=False)

    async def place_before(
        self, log: str, needle: bytes, *, first: bytes, last: bytes
    ) -> tuple[Cursor, bool]:
        """The place just before the first event with these bytes since the newest such event of the type `last`.

        One of the type `first` is known to be the first. False with the log's end where there is no such event, be
        it that it is gone or that it is yet to come.
        """
        generation, tail = await self._head(log)
        found, oldest = None, None
        while entries := await self._reading.call(
            "XREVRANGE", f"{log}:events", f"{oldest - 1}-0" if oldest else "+", "-", "COUNT", _PAGE
        ):
            for name, fields in entries:
                oldest = int(name.split(b"-")[0])
                if needle in fields[1] and type_of(fields[1]) == last:
                    return Cursor(generation, found - 1 if found else tail), found is not None
                found = oldest if needle in fields[1] else found
                if found == oldest and type_of(fields[1]) == first:
                    return Cursor(generation, oldest - 1), True
            if oldest == 1:
                break
        return Cursor(generation, found - 1 if found else tail), found is not None

    async def _head(self, log: str) -> tuple[str, int]:
        keys = [f"{log}:head", f"{log}:events"]
        generation, offset = await self._reading.call(*HEAD.call(keys, ids.generation(), _DAY))
        return generation.decode(), int(offset or 0)

    async def erase(self, log: str) -> None:
        """Forget all of it; who still appends under a lease of before is refused."""
        keys = [f"{log}:head", f"{log}:events"]
        await self._pipeline.call(*ERASE.call(keys, ids.generation(), _HOUR))
