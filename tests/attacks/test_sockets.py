"""WebSockets of foreign pages, of tokens that end, and of those who open too many."""

import asyncio
import time

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.client import LEEWAY, Socket, User, token
from tests.support.instance import Instance

OURS = {"aud": "tertulia", "iss": "https://id.example"}


def address(server: Instance) -> str:
    return server.url.replace("http", "ws", 1) + "/ws"


def opened(server: Instance, bearer: str, origin: str | None = None) -> connect:
    headers = {"Authorization": f"Bearer {bearer}"}
    return connect(address(server), additional_headers=headers, origin=origin, proxy=None)  # pyright: ignore


async def ended(connection: ClientConnection, patience: float = 10) -> tuple[int | None, str | None]:
    async with asyncio.timeout(patience):
        await connection.wait_closed()
    return connection.close_code, connection.close_reason


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "null",
        "file://",
        "http://localhost:{port}",
        "http://127.0.0.1:{port}.evil.example",
        "http://evil.example/127.0.0.1:{port}",
        "http://x@127.0.0.1:{port}",
        "https://app.example.evil.example",
        "http://app.example",
        "https://APP.example",
    ],
)
async def test_a_page_of_another_origin_cannot_connect(origin: str, strict: Instance) -> None:
    foreign = origin.replace("{port}", strict.url.rpartition(":")[2])
    with pytest.raises(InvalidStatus) as refused:
        async with opened(strict, token("ann", "origin", **OURS), foreign):
            pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("origin", [None, "{server}", "https://app.example", "https://other.example"])
async def test_our_own_page_and_those_allowed_and_programs_may_connect(
    origin: str | None, strict: Instance
) -> None:
    origin = origin and origin.replace("{server}", strict.url)
    async with opened(strict, token("ann", f"origin-{origin}", **OURS), origin) as connection:
        assert (await Socket(connection).next())["type"] == "connected"


async def test_a_socket_ends_with_its_token(server: Instance) -> None:
    async with opened(server, token("ann", ttl=2 - LEEWAY)) as connection:
        began = time.monotonic()
        assert await ended(connection) == (4001, "The token has expired.")
        assert 0.9 < time.monotonic() - began < 4


async def test_a_newer_token_keeps_a_socket_open_and_one_of_another_user_ends_it(server: Instance) -> None:
    async with opened(server, token("ann", ttl=2 - LEEWAY)) as connection:
        socket = Socket(connection)
        await socket.say(type="auth", token=token("ann"))
        await asyncio.sleep(2.5)
        await socket.say(type="ping")
        await socket.until("pong")
        await socket.say(type="auth", token=token("ann", "elsewhere"))
        assert await ended(connection) == (4001, "This socket belongs to another user.")


async def test_an_expired_token_does_not_connect(server: Instance) -> None:
    async with opened(server, token("ann", ttl=-60)) as connection:
        assert (await ended(connection))[0] == 4001


async def test_a_token_may_come_as_a_subprotocol_and_is_not_sent_back(server: Instance) -> None:
    async with connect(address(server), subprotocols=["bearer", token("ann")], proxy=None) as connection:  # pyright: ignore
        assert (await Socket(connection).next())["type"] == "connected"
        assert connection.subprotocol == "bearer"


@pytest.mark.parametrize("way", ["header", "frame"])
async def test_a_user_opens_only_so_many_sockets_whichever_way_they_sign_in(
    way: str, strict: Instance
) -> None:
    bearer = token("ann", f"many-{way}", **OURS)
    headers = {"Authorization": f"Bearer {bearer}"} if way == "header" else {}

    async def enter() -> Socket:
        connection = await connect(address(strict), additional_headers=headers, proxy=None)
        if way == "frame":
            await Socket(connection).say(type="auth", token=bearer)
        return Socket(connection)

    first = await enter()
    assert (await first.next())["type"] == "connected"
    second = await enter()
    assert (await second.next())["type"] == "connected"
    third = await enter()
    assert await ended(third.connection) == (4008, "You have too many connections open. Close one first.")
    await first.connection.close()
    await asyncio.sleep(0.1)
    fourth = await enter()
    assert (await fourth.next())["type"] == "connected"
    await second.connection.close()
    await fourth.connection.close()


async def test_a_socket_listens_to_so_many_sessions_and_no_more(strict: Instance) -> None:
    async with User(strict.url, "ann", "sessions", **OURS) as user:
        sessions = [await user.session_id(await user.send("Hi")) for _ in range(4)]
        async with user.socket() as socket:
            for session in sessions[:3]:
                await socket.subscribe(session)
                await socket.until("subscribed")
            await socket.subscribe(sessions[3])
            assert (await socket.until("error"))["code"] == "RATE_LIMITED"
            await socket.say(type="unsubscribe", sessionId=sessions[0])
            await socket.subscribe(sessions[3])
            assert (await socket.until("subscribed"))["sessionId"] == sessions[3]


async def test_what_is_no_handshake_is_refused(server: Instance) -> None:
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        async with connect(address(server) + "/x", proxy=None) as connection:
            await connection.recv()
