"""Server-sent events as a strict client reads them, and clients of our streams over HTTP."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import httpx

from tertulia import clock
from tertulia.core.events import Event as Logged
from tertulia.core.events import TextDelta, encode
from tertulia.events.log import SCRIPTS, EventLog, session_log
from tertulia.valkey import Pipeline, connect
from tests.support.client import User

_BLOCK = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE = re.compile(rb"\r\n|\n|\r")  # and no other character: U+2028 is text like any other


@dataclass(frozen=True)
class Event:
    """One event, its data as a dictionary. `at` is when it came; it does not count in comparisons.

    Only why a stream ends before its time is told without an id: that is no event of the log.
    """

    id: str
    type: str
    data: dict[str, Any]
    at: float = field(default_factory=time.monotonic, compare=False)

    @property
    def turn(self) -> str | None:
        return self.data.get("turnId")

    @property
    def inner(self) -> dict[str, Any]:
        return self.data["data"]


class Parser:
    """Takes bytes in whatever pieces, yields what is complete, and objects to anything unusual.

    `last` is what a client would resume from: the id of the last complete block.
    """

    def __init__(self) -> None:
        self._rest = b""
        self.last: str | None = None
        self.comments: list[str] = []

    def feed(self, data: bytes) -> list[Event]:
        self._rest += data
        *blocks, self._rest = _BLOCK.split(self._rest)
        return [event for block in blocks if (event := self._block(block))]

    @property
    def unfinished(self) -> bytes:
        return self._rest

    def _block(self, block: bytes) -> Event | None:
        fields: dict[str, str] = {}
        for line in _LINE.split(block):
            name, colon, value = line.decode("utf-8").partition(":")
            assert colon, f"a line that is no field: {line!r}"
            if not name:
                self.comments.append(value.strip())
                continue
            assert name in ("id", "event", "data", "retry"), line
            assert name not in fields, f"twice in one event: {name}"
            fields[name] = value.removeprefix(" ")
        self.last = fields.get("id", self.last)
        if "data" not in fields:
            assert "event" not in fields, block
            return None
        event = Event(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
        assert (event.data.get("cursor", ""), event.data["type"]) == (event.id, event.type)
        assert event.id or event.type == "error", block
        return event


class Stream:
    """An open stream, read in the background until the server ends it (`closed`) or the line breaks (`cut`)."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.events: list[Event] = []
        self._raw: list[bytes] = []
        self.end: str | None = None
        self._response = response
        self._parser = Parser()
        self._came = asyncio.Condition()

    @property
    def raw(self) -> bytes:
        """All bytes that came."""
        return b"".join(self._raw)

    @property
    def last(self) -> str | None:
        return self._parser.last

    @property
    def comments(self) -> list[str]:
        return self._parser.comments

    async def read(self) -> None:
        try:
            async for data in self._response.aiter_raw():
                self._raw.append(data)
                self.events += self._parser.feed(data)
                await self._tell()
            assert not self._parser.unfinished, self._parser.unfinished
            self.end = "closed"
        except httpx.TransportError:
            self.end = "cut"
        except Exception as broken:  # noqa: BLE001  whoever waits for an event is told
            self.end = repr(broken)
        await self._tell()

    async def _tell(self) -> None:
        async with self._came:
            self._came.notify_all()

    async def begun(self, patience: float = 15) -> str:
        """Where the stream is, once it has said so."""
        await self._until(lambda: self.last or self.end, patience)
        assert self.last, self.end
        return self.last

    async def heard(self, kind: str, patience: float = 15, **data: Any) -> Event:
        """The first event of this type with these fields, from the beginning of what came."""

        def found() -> list[Event]:
            return [e for e in self.events if e.type == kind and data.items() <= e.data.items()]

        await self._until(lambda: found() or self.end, patience)
        assert found(), f"no {kind} {data} before the stream was {self.end}: {types(self.events)}"
        return found()[0]

    async def commented(self, times: int, patience: float = 15) -> None:
        await self._until(lambda: len(self.comments) >= times, patience)

    async def over(self, patience: float = 15) -> list[Event]:
        """Everything, once the server has ended the stream as it should."""
        await self._until(lambda: self.end, patience)
        assert self.end == "closed", self.end
        return self.events

    async def _until(self, condition: Any, patience: float) -> None:
        try:
            async with asyncio.timeout(patience), self._came:
                await self._came.wait_for(condition)
        except TimeoutError:
            raise AssertionError(f"not within {patience} s, only: {self.raw[-2000:]!r}") from None


@asynccontextmanager
async def _opened(user: User, method: str, path: str, **request: Any) -> AsyncGenerator[Stream]:
    async with user.http.stream(method, path, **request) as response:
        if response.status_code != 200:
            raise AssertionError(f"{response.status_code}: {await response.aread()!r}")
        stream = Stream(response)
        reading = asyncio.create_task(stream.read())
        try:
            yield stream
        finally:
            reading.cancel()
            await asyncio.wait([reading])


@asynccontextmanager
async def saying(
    user: User, conversation: str, content: str, *, key: str | None = None
) -> AsyncGenerator[Stream]:
    """Say something and hear the answer as it comes."""
    headers = {"Idempotency-Key": key} if key else {}
    path = f"/conversations/{conversation}/messages"
    async with _opened(user, "POST", path, json={"content": content}, headers=headers) as stream:
        yield stream


@asynccontextmanager
async def listening(user: User, conversation: str, last: str | None = None) -> AsyncGenerator[Stream]:
    """Everything of a conversation, from now on or from after the last id that was seen."""
    headers = {"Last-Event-ID": last} if last else {}
    path = f"/api/conversations/{conversation}/events"
    async with _opened(user, "GET", path, headers=headers) as stream:
        yield stream


async def begun(user: User) -> str:
    """A new conversation."""
    response = await user.http.post("/api/conversations", json={})
    assert response.status_code == 201, response.text
    return response.json()["id"]


async def stored(user: User, conversation: str) -> list[str]:
    """What the agent has said in it, as it is kept."""
    page = await user.conversation(conversation, limit=200)
    return [message["content"] for message in page["messages"] if message["role"] == "assistant"]


def types(events: Iterable[Event]) -> list[str]:
    return [event.type for event in events]


def words(events: Iterable[Event]) -> str:
    """The deltas, joined, as a client shows them: a `message_start` with a higher attempt discards what was before."""
    said, attempt = "", 0
    for event in events:
        if event.type == "message_start" and event.data["attempt"] > attempt:
            said, attempt = "", event.data["attempt"]
        elif event.type == "text_delta" and event.data["attempt"] == attempt:
            said += event.inner["text"]
    return said


async def crowded(redis_url: str, tenant: str, conversation: str, events: int, size: int = 1) -> None:
    """So many deltas of some other turn in the conversation's log, as its worker would append them."""
    client = connect(redis_url)
    pipeline = Pipeline(client, *SCRIPTS)
    log, name = EventLog(pipeline, 10_000, size=100_000_000), UUID(conversation)
    delta = TextDelta(text="x" * size)
    event = encode(Logged(delta.type, name, clock.now(), delta, turn_id=uuid4(), attempt=1))
    for start in range(0, events, 50):
        await log.append(session_log(tenant, name), [event] * min(50, events - start))
    await pipeline.close()
    await client.aclose()
