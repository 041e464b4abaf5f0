"""What a WebSocket client may not say, and how it is told."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.support.client import Socket, User
from tests.support.instance import Instance
from tests.support.rows import Unwritten

NO_FRAMES = {
    "nothing": "",
    "null": "null",
    "an array": "[]",
    "an object without a type": "{}",
    "a number as type": '{"type": 5}',
    "an unknown type": '{"type": "shutdown"}',
    "half an object": '{"type": "ping"',
    "an unknown field": '{"type": "subscribe", "sessionId": "a", "user": "bob"}',
    "duplicate keys": '{"type": "message", "content": "Hi", "content": "Ho"}',
    "two types": '{"type": "ping", "type": "message", "content": "Hi"}',
    "a key twice, once escaped": r'{"type": "message", "content": "Hi", "c\u006fntent": "Ho"}',
    "half a surrogate pair": r'{"type": "message", "content": "\ud83d"}',
    "50,000 open brackets": "[" * 50_000,
    "5,000 digits": '{"type": "message", "content": ' + "9" * 5000 + "}",
    "1e999": '{"type": "message", "content": 1e999}',
    "NaN": '{"type": "message", "content": NaN}',
    "an unknown topic": '{"type": "subscribe", "topic": "everything"}',
}


async def closed(socket: Socket, patience: float = 10) -> tuple[int | None, str | None]:
    """The code and reason with which the server ends the connection."""
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(patience):
            while True:
                await socket.connection.recv()
    return socket.connection.close_code, socket.connection.close_reason


async def given_up(socket: Socket, *messages: object) -> int | None:
    """The code with which the server ends the connection while it is still being talked to."""

    async def talk() -> None:
        for message in messages:
            await socket.connection.send(message)  # pyright: ignore[reportArgumentType]

    talking = asyncio.ensure_future(talk())
    code, _ = await closed(socket)
    talking.cancel()
    await asyncio.wait([talking])
    return code


async def alive(socket: Socket) -> bool:
    await socket.say(type="ping")
    return (await socket.until("pong"))["type"] == "pong"


def address(user: User) -> str:
    return user.url.replace("http", "ws", 1) + "/ws"


@pytest.mark.parametrize("frame", NO_FRAMES.values(), ids=NO_FRAMES.keys())
async def test_a_frame_that_means_nothing_is_refused_and_the_socket_stays(
    frame: str, user: User, unwritten: Unwritten
) -> None:
    async with unwritten(), user.socket() as socket:
        await socket.connection.send(frame)
        error = await socket.next()
        assert (error["type"], error["code"]) == ("error", "INVALID_FRAME")
        assert len(error["content"]) < 300
        assert await alive(socket)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"content": ""}, "MESSAGE_CONTENT_REQUIRED"),
        ({"content": "\u3164\u200b"}, "MESSAGE_CONTENT_REQUIRED"),
        ({"content": "a\x00b"}, "INVALID_REQUEST"),
        ({"content": "你" * 10_001}, "MESSAGE_TOO_LONG"),
        ({"content": "Hi", "session_id": ""}, "INVALID_REQUEST"),
        ({"content": "Hi", "session_id": "a\nb"}, "INVALID_REQUEST"),
        ({"content": "Hi", "session_id": "a\x00b"}, "INVALID_REQUEST"),
        ({"content": "Hi", "agent_id": "a\x00b"}, "AGENT_NOT_FOUND"),
        ({"content": "Hi", "idempotency_key": ""}, "INVALID_REQUEST"),
        ({"content": "Hi", "idempotency_key": "a\x00b"}, "INVALID_REQUEST"),
    ],
)
async def test_a_message_that_rest_would_refuse_is_refused_here_in_the_same_words(
    frame: dict[str, Any], code: str, user: User, unwritten: Unwritten
) -> None:
    async with unwritten(), user.socket() as socket:
        await socket.say(type="message", **frame)
        assert (await socket.until("error"))["code"] == code
        assert await alive(socket)


@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "as UTF-8"])
async def test_ten_thousand_astral_characters_fit_into_a_frame(escaped: bool, user: User) -> None:
    async with user.socket() as socket:
        frame = {"type": "message", "content": "😀" * 10_000}
        await socket.connection.send(json.dumps(frame, ensure_ascii=escaped))
        accepted = await socket.until("accepted")
    assert (await user.state(accepted["message_id"]))["content"] == "😀" * 10_000


@pytest.mark.parametrize(
    "session",
    ["", "x", "a\x00b", "x" * 100_000, "' OR 1=1 --", "😀", "*", "user", "\ufffe"],
    ids=["empty", "short", "NUL", "long", "SQL", "emoji", "star", "user", "noncharacter"],
)
async def test_a_session_that_is_not_there_cannot_be_listened_to(session: str, user: User) -> None:
    async with user.socket() as socket:
        await socket.subscribe(session)
        code = (await socket.until("error"))["code"]
        assert code == ("CONVERSATION_NOT_FOUND" if session else "INVALID_REQUEST")
        assert await alive(socket)


@pytest.mark.parametrize(
    "cursor",
    [
        "garbage",
        "0.0",
        ".",
        "a.-1",
        "a.1.2",
        "a.99999999999999999999",
        "é.1",
        "a.１",
        "\x00.1",
        "x" * 10_000,
        "00000000.999999999999999",
    ],
)
async def test_a_cursor_that_we_never_gave_is_answered_with_resync(cursor: str, user: User) -> None:
    sent = await user.send("Hi")
    await user.answered(sent)
    session = await user.session_id(sent)
    async with user.socket() as socket:
        await socket.subscribe(session, after=cursor)
        resync = await socket.until("resync")
        assert resync["conversationId"] == sent["conversation_id"]
        assert [turn["status"] for turn in resync["data"]["turns"]] == ["done"]


async def test_a_cursor_of_the_future_is_answered_with_resync(user: User) -> None:
    sent = await user.send("Hi")
    await user.answered(sent)
    async with user.socket() as socket:
        await socket.subscribe(await user.session_id(sent))
        generation, _, offset = (await socket.until("subscribed"))["cursor"].partition(".")
        await socket.subscribe(await user.session_id(sent), after=f"{generation}.{int(offset) + 1}")
        assert (await socket.until("resync"))["cursor"] == f"{generation}.{offset}"


async def test_a_binary_frame_ends_the_connection(user: User) -> None:
    async with user.socket() as socket:
        await socket.connection.send(b'{"type": "ping"}')
        assert await closed(socket) == (1003, "Only text frames are understood here.")


async def test_a_frame_of_16_mib_ends_the_connection(user: User) -> None:
    async with user.socket() as socket:
        assert await given_up(socket, "x" * 16_777_216) == 1009


async def test_text_that_is_no_utf_8_ends_the_connection(user: User) -> None:
    async with user.socket() as socket:
        await socket.connection.send(b"\xff\xfe", text=True)
        assert (await closed(socket))[0] == 1007


async def test_a_message_in_endless_crumbs_ends_the_connection(user: User) -> None:
    async def crumbs() -> AsyncIterator[str]:
        for _ in range(100_000):
            yield ""

    async with user.socket() as socket:
        code = await given_up(socket, crumbs())
        assert code in (1008, 1006), "1006 when the crumbs on their way cut the goodbye short"


async def test_more_frames_than_a_person_could_send_end_the_connection(user: User) -> None:
    async with user.socket() as socket:
        assert await given_up(socket, *['{"type": "ping"}'] * 2000) == 4008
        assert socket.connection.close_reason == "Too many frames."


async def test_pings_of_a_client_that_does_not_read_pile_up_nothing(user: User, server: Instance) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(
        f"GET /ws HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {user.token}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    before = psutil.Process(server.pid).memory_info().rss
    for _ in range(500):  # 66 MB
        writer.write((b"\x89\xfd\0\0\0\0" + b"x" * 125) * 1000)
        await writer.drain()
    assert psutil.Process(server.pid).memory_info().rss - before < 32_000_000
    writer.close()


async def test_ten_thousand_subscriptions_are_not_kept(user: User) -> None:
    session = await user.session_id(await user.send("Hi"))
    async with user.socket() as socket:
        frame = json.dumps({"type": "subscribe", "sessionId": session})
        assert await given_up(socket, *[frame] * 10_000) == 4008


@pytest.mark.parametrize(
    "frame", [{"type": "subscribe", "sessionId": "x"}, {"type": "message", "content": "Hi"}]
)
async def test_a_client_that_has_not_signed_in_may_do_nothing(
    frame: dict[str, Any], user: User, unwritten: Unwritten
) -> None:
    async with unwritten(), connect(address(user), proxy=None) as connection:
        socket = Socket(connection)
        await socket.say(**frame)
        assert (await socket.next())["code"] == "UNAUTHENTICATED"
        assert await closed(socket) == (4001, "Sign in first: a valid bearer token is needed.")


async def test_a_client_that_only_pings_is_not_waited_for(user: User) -> None:
    async with connect(address(user), proxy=None) as connection:
        socket = Socket(connection)
        await asyncio.sleep(7)
        await socket.say(type="ping")
        await socket.until("pong")
        assert await closed(socket, patience=5) == (4001, "No token came in time.")


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "a\x00b", "x" * 100_000, "é"])
async def test_a_token_that_is_none_ends_the_connection(token: str, user: User) -> None:
    for frame in (
        {"type": "auth", "token": token},
        {"type": "subscribe", "topic": "user", "token": token or "y"},
    ):
        async with connect(address(user), proxy=None) as connection:
            socket = Socket(connection)
            await socket.say(**frame)
            assert (await socket.next())["code"] == "UNAUTHENTICATED"
            assert (await closed(socket))[0] == 4001
