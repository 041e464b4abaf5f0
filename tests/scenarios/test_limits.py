"""How much one may ask at a time: refused with a reason and a time to wait, and nobody else is harmed."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tertulia.embedded import Services
from tests.scenarios.conftest import Someone, word
from tests.support.backends import fresh_database
from tests.support.client import User
from tests.support.instance import Instance
from tests.support.observe import eventually
from tests.support.valkey import running_valkey

MANY_OF_ONE_TENANT = (
    "Your organisation has many messages waiting for answers. Please wait until some are done."
)


async def test_a_conversation_takes_only_so_many_unanswered_messages(
    strict: Instance, someone: Someone
) -> None:
    ann = await someone("ann", at=strict)
    session = word("s")
    slow = '[[text {"said": "slow", "first": 0.8}]]'
    sent = [await ann.send(slow, session) for _ in range(3)]
    refused = await ann.post("One too many", session)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "CONVERSATION_BUSY"
    assert int(refused.headers["Retry-After"]) >= 1
    other = await ann.send("In another conversation", word("s"))
    assert (await ann.answered(other))["status"] == "done"
    assert [(await ann.answered(each))["status"] for each in sent] == ["done", "done", "done"]
    assert (await ann.ask("Now there is room", session))["status"] == "done"
    history = await ann.conversation(sent[0]["conversation_id"])
    assert "One too many" not in [message["content"] for message in history["messages"]]


async def test_a_user_has_only_so_many_unanswered_messages_and_others_are_not_harmed(
    strict: Instance, someone: Someone
) -> None:
    ann, bob = await someone("ann", at=strict), await someone("bob", at=strict)
    sent = [await ann.send('[[text {"said": "slow", "first": 0.8}]]') for _ in range(5)]
    refused = await ann.post("One too many")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "TOO_MANY_TURNS")
    assert int(refused.headers["Retry-After"]) >= 1
    assert (await bob.ask("And me?"))["status"] == "done"
    await asyncio.gather(*(ann.answered(each) for each in sent))
    assert (await ann.ask("Now there is room"))["status"] == "done"


@pytest.fixture(scope="module")
async def waiting(
    backends: Services, settings: dict[str, Any], folder: Path
) -> AsyncGenerator[tuple[Instance, dict[str, Any]]]:
    """A server that only accepts, three messages of a tenant, and the settings for whoever is to answer them."""
    with running_valkey() as valkey:
        url = await fresh_database(backends, "tertulia_waiting")
        own = settings | {"database_url": url, "redis_url": valkey, "open_turns_per_tenant": 3}
        with Instance("serve", folder, "--no-worker", "--port", "0", **own) as running:
            yield running, own


async def test_a_tenant_has_only_so_many_unanswered_messages_and_others_are_not_harmed(
    waiting: tuple[Instance, dict[str, Any]], someone: Someone, folder: Path
) -> None:
    server, own = waiting
    busy, calm = word("busy"), word("calm")
    *early, late = [await someone("u", busy, at=server) for _ in range(4)]
    zoe = await someone("zoe", calm, at=server)
    sent = [await user.send("Hello", key="once") for user in early]
    of_zoe = [await zoe.send("Hello") for _ in range(2)]

    async def crowded() -> bool:
        response = await late.post("")  # would be refused anyway, and so adds nothing
        return response.json()["error"]["code"] == "TOO_MANY_TURNS"

    await eventually(crowded, 8)
    response = await late.post("One too many")
    assert (response.status_code, response.headers["Retry-After"]) == (429, "5")
    assert response.json()["error"] == {"code": "TOO_MANY_TURNS", "message": MANY_OF_ONE_TENANT}
    assert (await late.http.get("/api/conversations")).json()["conversations"] == []
    assert [await user.send("Hello", key="once") for user in early] == sent, "it was accepted before"
    of_zoe.append(await zoe.send("And I?"))
    assert {(await zoe.state(each["message_id"]))["status"] for each in of_zoe} == {"queued"}

    with Instance("worker", folder, **own):
        for user, each in zip(early, sent, strict=True):
            assert (await user.answered(each))["status"] == "done"

        async def accepted() -> dict[str, Any] | None:
            response = await late.post("Now there is room")
            return response.json() if response.status_code == 202 else None

        assert (await late.answered(await eventually(accepted, 8)))["status"] == "done"


@pytest.fixture(scope="module")
async def frugal(server: Instance, settings: dict[str, Any], folder: Path) -> AsyncGenerator[Instance]:
    """Another front of the shared server, where a user may ask 40 times a minute, ten of them at once."""
    narrow = {"user_requests_per_minute": 40, "tenant_requests_per_minute": 80, "sockets_per_user": 1}
    with Instance("serve", folder, "--no-worker", "--port", "0", **settings | narrow) as running:
        yield running


async def test_who_asks_too_often_is_told_when_to_come_back_and_others_are_not_harmed(
    frugal: Instance, someone: Someone
) -> None:
    ann, bob = await someone("ann", word("t"), at=frugal), await someone("bob", word("t"), at=frugal)
    got = [await ann.http.get("/api/notifications") for _ in range(11)]
    assert [response.status_code for response in got] == [200] * 10 + [429]
    assert got[-1].json()["error"]["code"] == "RATE_LIMITED"
    wait = int(got[-1].headers["Retry-After"])
    assert 1 <= wait <= 2
    assert (await ann.post("Not now")).status_code == 429
    assert (await bob.http.get("/api/notifications")).status_code == 200
    await asyncio.sleep(wait)
    assert (await ann.http.get("/api/notifications")).status_code == 200


async def test_a_tenant_that_asks_too_often_does_not_harm_another(frugal: Instance, someone: Someone) -> None:
    busy, calm = word("busy"), word("calm")
    users = [await someone("u", busy, at=frugal) for _ in range(3)]
    got = [(await user.http.get("/api/notifications")).status_code for user in users for _ in range(8)]
    assert got == [200] * 20 + [429] * 4
    other = await someone("u", calm, at=frugal)
    assert (await other.http.get("/api/notifications")).status_code == 200


async def test_operations_are_not_counted(frugal: Instance) -> None:
    async with User(frugal.url, word("ann"), word("t")) as ann:
        assert {(await ann.http.get("/healthz")).status_code for _ in range(50)} == {200}


async def test_a_body_that_is_too_large_is_refused(ann: User) -> None:
    response = await ann.http.post("/api/messages", content=b'{"content": "' + b"x" * 1_100_000 + b'"}')
    assert (response.status_code, response.json()["error"]["code"]) == (413, "BODY_TOO_LARGE")
