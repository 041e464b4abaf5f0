"""A token that is far longer than one of ours lets nobody in, whoever has signed it."""

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.support.client import Socket, token
from tests.support.instance import Instance
from tests.support.refusals import refused


def of_length(low: int, high: int) -> str:
    """A token, signed by us, of a length between these; its name says much."""
    lengths = (token("lena", "long", name="x" * size) for size in range(low // 2, high))
    return next(bearer for bearer in lengths if low <= len(bearer) <= high)


async def ask(server: Instance, bearer: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        return await http.get("/api/notifications", headers={"Authorization": f"Bearer {bearer}"})


async def test_a_token_may_have_8192_characters(server: Instance) -> None:
    assert (await ask(server, of_length(8185, 8192))).status_code == 200


@pytest.mark.parametrize("length", [8193, 20_000])
async def test_a_longer_token_is_none_of_ours(length: int, server: Instance) -> None:
    response = await ask(server, of_length(length, length + 7))
    error = refused(response, 401, "UNAUTHENTICATED")
    assert error["message"] == "The token is too long to be one of ours."
    assert response.headers["www-authenticate"] == "Bearer"


async def test_a_longer_token_is_none_of_ours_in_a_frame_either(server: Instance) -> None:
    async with connect(server.url.replace("http", "ws", 1) + "/ws", proxy=None) as connection:
        socket = Socket(connection)
        await socket.say(type="auth", token=of_length(8193, 8200))
        assert (await socket.next())["code"] == "UNAUTHENTICATED"
        await connection.wait_closed()
    assert connection.close_code == 4001
