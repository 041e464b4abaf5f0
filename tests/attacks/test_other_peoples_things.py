"""Reaching for what belongs to somebody else, by every way in: it is never there."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from tests.attacks.conftest import Victim
from tests.support.client import Socket, User
from tests.support.refusals import refused
from tests.support.rows import Rows

ROUTES = {
    "GET /api/messages/{message}": "MESSAGE_NOT_FOUND",
    "POST /api/turns/{turn}/retry": "TURN_NOT_FOUND",
    "GET /api/conversations/{conversation}": "CONVERSATION_NOT_FOUND",
    "DELETE /api/conversations/{conversation}": "CONVERSATION_NOT_FOUND",
    "POST /api/conversations/{conversation}/abort": "CONVERSATION_NOT_FOUND",
    "POST /api/conversations/{conversation}/restore": "CONVERSATION_NOT_FOUND",
    "PATCH /api/notifications/{notification}/read": "NOTIFICATION_NOT_FOUND",
}


@pytest.mark.parametrize("route", ROUTES)
async def test_what_is_somebody_elses_is_answered_as_what_never_was(
    route: str, victim: Victim, attacker: User, rows: Rows
) -> None:
    names = victim._asdict()
    method, path = route.format(**names).split(" ")
    before = await rows.count(victim.user.tenant)
    response = await attacker.http.request(method, path)
    refused(response, 404, ROUTES[route])
    never = await attacker.http.request(
        method, route.format(**dict.fromkeys(names, str(uuid4()))).partition(" ")[2]
    )
    assert response.json() == never.json()
    after = await rows.count(victim.user.tenant)
    assert after | {"users": 0} == before | {"users": 0}
    assert (await victim.user.conversation(victim.conversation))["messages"][0]["content"] == (
        f"The word is {victim.secret}."
    )


async def test_a_deleted_conversation_can_be_brought_back_by_its_owner_only(
    victim: Victim, attacker: User
) -> None:
    path = f"/api/conversations/{victim.conversation}"
    assert (await victim.user.http.delete(path)).json() == {"status": "deleted", "restorableForSeconds": 10.0}
    refused(await attacker.http.post(f"{path}/restore"), 404, "CONVERSATION_NOT_FOUND")
    refused(await victim.user.http.get(path), 404, "CONVERSATION_NOT_FOUND")
    assert (await victim.user.http.post(f"{path}/restore")).json() == {"status": "restored"}
    assert (await victim.user.http.get(path)).status_code == 200


async def test_somebody_elses_notifications_are_not_listed(victim: Victim, attacker: User) -> None:
    listed = await attacker.http.get("/api/notifications?limit=200")
    assert victim.secret not in listed.text
    beside = await attacker.http.get(f"/api/notifications?cursor=9999999999999999.{victim.notification}")
    assert beside.status_code == 200
    assert victim.secret not in beside.text
    assert victim.secret in (await victim.user.http.get("/api/notifications")).text


@pytest.mark.parametrize("named", ["conversation", "handle", "session"])
async def test_somebody_elses_names_are_just_new_handles_to_another(
    named: str, victim: Victim, attacker: User
) -> None:
    name = getattr(victim, named)
    sent = await attacker.send("What is the word?", name)
    assert sent["session_id"] == name
    assert sent["conversation_id"] != victim.conversation
    await attacker.answered(sent)
    page = await attacker.conversation(sent["conversation_id"])
    assert page["messages"][0]["content"] == "What is the word?"
    assert len((await victim.user.conversation(victim.conversation))["messages"]) == 2


async def test_somebody_elses_idempotency_key_does_not_give_their_answer(
    victim: Victim, attacker: User
) -> None:
    key = uuid4().hex
    theirs = await victim.user.send("Hi", key=key)
    mine = await attacker.send("Hi", key=key)
    assert not set(theirs.values()) & (set(mine.values()) - {"queued"})


@pytest.mark.parametrize("named", ["session", "conversation", "handle", "message"])
async def test_somebody_elses_session_cannot_be_listened_to(
    named: str, victim: Victim, attacker: User
) -> None:
    async with attacker.socket() as socket:
        for after in (None, "0.0"):
            await socket.subscribe(getattr(victim, named), after=after)
            error = await socket.until("error")
            assert (error["code"], error["content"]) == (
                "CONVERSATION_NOT_FOUND",
                "There is no such conversation.",
            )
        await victim.user.ask(f"And again: {victim.secret}.", victim.handle)
        await attacker.ask("Anything?")
        await socket.until("message")
    assert not [frame for frame in socket.seen if victim.secret in str(frame)]


async def test_ones_own_conversation_is_listened_to_by_its_credential_only(victim: Victim) -> None:
    async with victim.user.socket() as socket:
        for name in (victim.conversation, victim.handle):
            await socket.subscribe(name)
            assert (await socket.until("error"))["code"] == "CONVERSATION_NOT_FOUND"
        await socket.subscribe(victim.session)
        assert (await socket.until("subscribed"))["sessionId"] == victim.session


async def test_the_credential_of_a_deleted_conversation_opens_nothing(victim: Victim) -> None:
    assert (await victim.user.http.delete(f"/api/conversations/{victim.conversation}")).status_code == 200
    async with victim.user.socket() as socket:
        await socket.subscribe(victim.session)
        assert (await socket.until("error"))["code"] == "CONVERSATION_NOT_FOUND"


async def test_a_token_in_a_subscription_does_not_change_whose_socket_it_is(
    victim: Victim, attacker: User
) -> None:
    async with attacker.socket() as socket:
        await socket.say(type="subscribe", sessionId=victim.session, token=victim.user.token)
        assert await _end(socket) == (4001, "This socket belongs to another user.")


async def test_a_body_cannot_say_who_one_is(victim: Victim, attacker: User, rows: Rows) -> None:
    before = await rows.count(victim.user.tenant)
    for field in ("user", "user_id", "tenant", "tenant_id", "role", "conversation_id", "from_user_id"):
        body = {"content": "Hi", field: "vera"}
        refused(await attacker.http.post("/api/messages", json=body), 400, "INVALID_REQUEST")
    assert await rows.count(victim.user.tenant) | {"users": 0} == before | {"users": 0}


async def test_headers_and_parameters_cannot_say_who_one_is(victim: Victim, attacker: User) -> None:
    claims = {
        "X-User-Id": "vera",
        "X-Tenant-Id": victim.user.tenant,
        "X-Forwarded-User": "vera",
        "user_id": "vera",
    }
    path = f"/api/conversations/{victim.conversation}"
    query: dict[str, Any] = {"user": "vera", "tenant": victim.user.tenant, "token": victim.user.token}
    refused(await attacker.http.get(path, headers=claims, params=query), 404, "CONVERSATION_NOT_FOUND")


async def test_replies_are_pushed_to_nobody_else(victim: Victim, attacker: User) -> None:
    async with attacker.socket() as eavesdropping, victim.user.socket() as listening:
        sent = await victim.user.send(f"Only for me: {victim.secret}")
        await listening.until("message", turn_id=sent["turn_id"])
        await asyncio.sleep(0.2)
        await eavesdropping.say(type="ping")
        await eavesdropping.until("pong")
    assert [frame["type"] for frame in eavesdropping.seen] == ["connected", "pong"]


async def _end(socket: Socket) -> tuple[int | None, str | None]:
    async with asyncio.timeout(5):
        await socket.connection.wait_closed()
    return socket.connection.close_code, socket.connection.close_reason
