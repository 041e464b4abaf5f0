"""A bug of ours, which a broken function in the database stands for: it is logged once, and told without a detail."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from websockets.exceptions import ConnectionClosed

from tertulia.embedded import Services
from tests.support.backends import of_superuser, private
from tests.support.client import User
from tests.support.instance import Instance
from tests.support.refusals import refused
from tests.support.sse import begun

SENTENCE = "Something went wrong on our side. Please try again."
FAULT = """
    RAISE division_by_zero USING MESSAGE = 'secret-of-the-database', DETAIL = 'SELECT secret-detail', HINT = 'psql';
"""
INSIDES = ("secret", "psql", "division", "22012", "zero", "PL/pgSQL", "asyncpg", "Traceback", "SELECT", ".py")

REQUESTS: dict[str, tuple[str, str, str, dict[str, str] | None]] = {
    "reading": ("read_page", "GET", "/api/conversations/{conversation}", None),
    "opening a standing conversation": ("open_standing", "GET", "/conversations/assistant", None),
    "reading a standing conversation": ("read_conversation", "GET", "/conversations/{conversation}", None),
    "reading its messages": ("read_page", "GET", "/conversations/{conversation}/messages", None),
    "reading its messages by its agent": ("open_standing", "GET", "/conversations/assistant/messages", None),
    "searching": ("search_messages", "GET", "/api/search?q=hello", None),
    "sending": ("accept_message", "POST", "/api/messages", {"content": "Hi"}),
    "asking for a stream": (
        "accept_message",
        "POST",
        "/conversations/{conversation}/messages",
        {"content": "Hi"},
    ),
}


@pytest.fixture(scope="module")
async def own(backends: Services, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a server whose database may be broken."""
    return settings | await private(backends)


@pytest.fixture(scope="module")
def breaking(own: dict[str, Any], folder: Path) -> Any:
    with Instance("serve", folder, "--no-worker", "--port", "0", **own) as running:
        yield running


@pytest.fixture
async def ann(breaking: Instance) -> AsyncGenerator[User]:
    async with User(breaking.url, f"ann-{uuid4().hex[:8]}") as user:
        yield user


@asynccontextmanager
async def broken(settings: dict[str, Any], function: str) -> AsyncIterator[None]:
    """Within this, one function of ours raises what nobody expects of it. Its owner and grants stay as they are."""
    postgres = await asyncpg.connect(of_superuser(settings["database_url"]))
    whole = await postgres.fetchval("SELECT pg_get_functiondef(to_regproc($1)::oid)", f"api.{function}")
    assert whole.count("\nBEGIN\n") == 1, whole
    await postgres.execute(whole.replace("\nBEGIN\n", f"\nBEGIN\n{FAULT}"))
    try:
        yield
    finally:
        await postgres.execute(whole)
        await postgres.close()


def said(server: Instance, since: int) -> list[dict[str, Any]]:
    """What the server has logged since then, all of it JSON, but for the requests that went well."""
    lines = [json.loads(line) for line in server.text[since:].splitlines()]
    return [line for line in lines if line["level"] in ("warning", "error", "critical")]


@pytest.mark.parametrize(("function", "method", "path", "body"), REQUESTS.values(), ids=list(REQUESTS.keys()))
async def test_a_bug_is_a_500_that_tells_nothing_and_is_logged_once(
    function: str, method: str, path: str, body: Any, own: dict[str, Any], breaking: Instance, ann: User
) -> None:
    address = path.format(conversation=await begun(ann))
    since = len(breaking.text)
    async with broken(own, function):
        response = await ann.http.request(method, address, json=body)
    assert refused(response, 500, "INTERNAL_ERROR")["message"] == SENTENCE
    assert not [word for word in INSIDES if word in response.text + str(response.headers)]
    again = await ann.http.request(method, address, json=body, headers={"Prefer": "respond-async"})
    assert again.status_code in (200, 202), again.text
    assert (await ann.http.get("/readyz")).status_code == 200
    (line,) = said(breaking, since)
    assert (line["event"], line["level"], line["method"]) == ("request broke", "error", method)
    assert line["route"] == address.partition("?")[0]
    assert "DivisionByZeroError: secret-of-the-database" in line["exception"]


async def test_a_bug_on_a_socket_ends_it_with_that_sentence_and_is_logged_once(
    own: dict[str, Any], breaking: Instance, ann: User
) -> None:
    since = len(breaking.text)
    async with broken(own, "accept_message"), ann.socket() as socket:
        await socket.say(type="message", content="Hi")
        with pytest.raises(ConnectionClosed):
            await socket.next()
    assert (socket.connection.close_code, socket.connection.close_reason) == (1011, SENTENCE)
    assert [frame["type"] for frame in socket.seen] == ["connected"]
    async with ann.socket() as other:
        await other.say(type="message", content="Hi")
        await other.until("accepted")
    (line,) = said(breaking, since)
    assert (line["event"], line["level"]) == ("socket broke", "error")
