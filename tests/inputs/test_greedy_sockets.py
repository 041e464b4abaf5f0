"""A WebSocket client that asks and does not read: what it is told is kept short, and it is sent away."""

import asyncio
import contextlib
import json
import socket as sockets
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from tests.support.client import Socket, User
from tests.support.instance import Instance
from tests.support.sse import begun, crowded

LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("session", "repeated"),
    [
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 200 + "…"),
        (LONG, "x" * 200 + "…"),
        ("你" * 900, "你" * 200 + "…"),
    ],
    ids=["200", "201", "100,000", "900 Chinese ones"],
)
@pytest.mark.parametrize(
    ("frame", "name", "code"),
    [
        ({"type": "subscribe"}, "sessionId", "CONVERSATION_NOT_FOUND"),
        ({"type": "message", "content": ""}, "session_id", "MESSAGE_CONTENT_REQUIRED"),
    ],
    ids=["subscribe", "message"],
)
async def test_of_a_long_session_id_200_characters_are_sent_back(
    session: str, repeated: str, frame: dict[str, Any], name: str, code: str, user: User
) -> None:
    async with user.socket() as socket:
        await socket.say(**frame, **{name: session})
        error = await socket.next()
        assert (error["type"], error["code"], error["session_id"]) == ("error", code, repeated)


@asynccontextmanager
async def deaf(user: User) -> AsyncGenerator[Socket]:
    """A socket that is not read from, with room for little in the network between."""
    host, port = user.url.removeprefix("http://").split(":")
    raw = sockets.socket()
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 32_768)
    raw.connect((host, int(port)))
    raw.setblocking(False)
    async with user.socket(sock=raw, max_queue=4, max_size=None) as socket:
        socket.connection.transport.pause_reading()
        yield socket


async def asks(socket: Socket, times: int, frame: str) -> None:
    """Ask so often, or until the line is closed or takes no more."""
    with contextlib.suppress(ConnectionClosed, TimeoutError):
        async with asyncio.timeout(10):
            for _ in range(times):
                await socket.connection.send(frame)


async def rest(socket: Socket) -> list[dict[str, Any]]:
    """What comes until the server has closed the socket."""
    socket.connection.transport.resume_reading()
    with contextlib.suppress(ConnectionClosed):
        while True:
            await socket.next()
    return socket.seen


async def test_a_client_that_asks_far_more_than_it_reads_is_closed_and_costs_little(
    user: User, server: Instance
) -> None:
    frame = json.dumps({"type": "subscribe", "sessionId": LONG})
    async with deaf(user) as socket:
        before = psutil.Process(server.pid).memory_info().rss
        await asks(socket, 400, frame)
        assert psutil.Process(server.pid).memory_info().rss - before < 8_000_000
        told = await rest(socket)
    assert socket.connection.close_code in (1008, 4008)
    assert {(error["code"], len(error["session_id"])) for error in told[1:]} == {
        ("CONVERSATION_NOT_FOUND", 201)
    }
    assert len(told) <= 200


@pytest.fixture
def narrow(settings: dict[str, Any], folder: Path) -> Generator[Instance]:
    """A server that keeps few frames for whoever does not read."""
    with Instance("serve", folder, "--port", "0", **settings, socket_buffer=10) as running:
        yield running


async def test_a_client_that_reads_nothing_of_what_it_listens_to_may_not_go_on_asking(
    narrow: Instance, settings: dict[str, Any]
) -> None:
    async with User(narrow.url, "greta", f"greedy-{uuid4().hex[:8]}") as user:
        conversation = await begun(user)
        session = (await user.conversation(conversation))["conversation"]["sessionId"]
        async with user.socket() as socket:
            await socket.subscribe(session)
            start = (await socket.until("subscribed"))["cursor"]
        await crowded(settings["redis_url"], user.tenant, conversation, 2000, 7000)
        async with deaf(user) as socket:
            await socket.subscribe(session, after=start)
            await asyncio.sleep(0.5)  # the line is full by now, and so is what the server keeps
            await asks(socket, 100, '{"type": "ping"}')
            told = await rest(socket)
    assert (socket.connection.close_code, socket.connection.close_reason) == (
        1008,
        "You ask more than you read.",
    )
    assert len(told) < 2000


async def test_a_slow_client_that_reads_may_ask_now_and_then_and_gets_everything(
    server: Instance, settings: dict[str, Any]
) -> None:
    async with User(server.url, "paula", f"patient-{uuid4().hex[:8]}") as user:
        conversation = await begun(user)
        session = (await user.conversation(conversation))["conversation"]["sessionId"]
        async with user.socket() as socket:
            await socket.subscribe(session)
            start = (await socket.until("subscribed"))["cursor"]
        await crowded(settings["redis_url"], user.tenant, conversation, 3000, 7000)
        async with deaf(user) as socket:
            await socket.subscribe(session, after=start)
            await asyncio.sleep(0.5)  # the line is full by now, and so is what the server keeps
            await socket.say(type="ping")
            await asyncio.sleep(0.2)
            socket.connection.transport.resume_reading()
            kinds: list[str] = []
            while kinds.count("text_delta") < 3000 or "pong" not in kinds:
                kinds.append((await socket.next())["type"])
    assert (kinds.count("text_delta"), kinds.count("pong")) == (3000, 1)
