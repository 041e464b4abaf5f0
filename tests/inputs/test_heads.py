"""Request lines and headers that do not come to an end, or are none."""

import asyncio
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.client import User
from tests.support.instance import Instance


async def answer(server: Instance, *parts: bytes) -> bytes:
    """What the server says to these bytes before it hangs up, or until it is silent for a while."""
    where = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        async with asyncio.timeout(20):
            for part in parts:
                writer.write(part)
                await writer.drain()
            return await reader.read()
    except (ConnectionResetError, BrokenPipeError):
        return b""
    finally:
        writer.close()


ENDLESS = {
    "an address": b"GET /" + b"a" * 65_000,
    "a header": b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 65_000,
    "headers": b"GET /healthz HTTP/1.1\r\n" + b"X: a\r\n" * 10_000,
    "a token": b"GET /api/notifications HTTP/1.1\r\nAuthorization: Bearer " + b"a" * 65_000,
}


@pytest.mark.parametrize("start", ENDLESS.values(), ids=ENDLESS.keys())
async def test_a_head_that_does_not_end_is_given_up_without_keeping_it(
    start: bytes, server: Instance
) -> None:
    before = psutil.Process(server.pid).memory_info().rss
    more = start[-6:] * 10_000
    said = await answer(server, start, *[more] * 1000)
    assert said == b"" or said.startswith(b"HTTP/1.1 431 ")
    assert psutil.Process(server.pid).memory_info().rss - before < 16_000_000


async def test_a_head_just_above_the_limit_is_told_so(server: Instance) -> None:
    said = await answer(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000)
    assert said.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert said.endswith(
        b'{"error":{"code":"HEADERS_TOO_LARGE","message":"The address or headers are too large."}}'
    )


async def test_a_large_body_is_no_large_head(user: User) -> None:
    for _ in range(3):
        response = await user.http.post("/api/messages", content=b" " * 900_000 + b'{"content": "Hi"}')
        assert response.status_code == 202


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"HELO there\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /a b HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA\x00: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/messages HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_a_400(head: bytes, server: Instance) -> None:
    said = await answer(server, head)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"Traceback" not in said


async def test_answers_do_not_say_what_serves_them(user: User) -> None:
    for path in ("/healthz", "/api/notifications", "/nope", "/docs", "/metrics"):
        response = await user.http.get(path)
        assert "server" not in response.headers
        assert "x-powered-by" not in response.headers


async def test_the_server_is_well_after_all_that(user: User) -> None:
    assert (await user.http.get("/healthz")).json() == {"status": "ok"}
    assert (await user.http.get("/readyz")).json() == {"status": "ready", "postgresql": True, "redis": True}
