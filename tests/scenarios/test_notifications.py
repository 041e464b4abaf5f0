"""What agents leave for other users: stored, pushed, listed, marked as read."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.scenarios.conftest import Someone, word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import calls, text


def notify(target: str, message: str) -> str:
    """A message that makes the model call `notify_user`."""
    return f'[[call {{"name": "notify_user", "args": {{"user_id": "{target}", "message": "{message}"}}}}]]'


async def known(someone: Someone, name: str, tenant: str = "acme") -> User:
    """A user whom the server has met."""
    user = await someone(name, tenant)
    assert await listed(user) == []
    return user


async def page(user: User, **query: Any) -> dict[str, Any]:
    response = await user.http.get("/api/notifications", params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def listed(user: User, **query: Any) -> list[str]:
    return [notification["message"] for notification in (await page(user, **query))["notifications"]]


@pytest.mark.scenario("002", "Notification stored for target user")
async def test_a_notification_is_stored_for_its_target(
    someone: Someone, database: asyncpg.Connection
) -> None:
    ann, bob = await known(someone, "ann"), await known(someone, "bob")
    state = await ann.ask(notify(bob.name, "Lunch at noon?"))
    row = await database.fetchrow("SELECT * FROM notifications WHERE to_user_id = $1", bob.name)
    assert state["status"] == "done"
    assert state["reply"]["actions"] == [
        {"type": "notify_user", "user_id": bob.name, "message": "Lunch at noon?"}
    ]
    assert row is not None
    assert (row["tenant"], row["from_user_id"], row["to_user_id"]) == ("acme", ann.name, bob.name)
    assert (row["message"], row["read"], row["read_at"]) == ("Lunch at noon?", False, None)
    assert abs(datetime.now(UTC) - row["created_at"]) < timedelta(seconds=10)


@pytest.mark.scenario("002", "Notification stored for target user")
async def test_the_target_sees_a_notification_at_once_and_nobody_else_does(someone: Someone) -> None:
    ann, bob, eve = [await known(someone, name) for name in ("ann", "bob", "eve")]
    async with bob.socket() as of_bob, eve.socket() as of_eve, ann.socket() as of_ann:
        await ann.ask(notify(bob.name, "Only for you"))
        pushed = await of_bob.until("notification")
        replied = await of_ann.until("message")
        assert await of_eve.quiet() == []
    assert (pushed["from_user_id"], pushed["to_user_id"]) == (ann.name, bob.name)
    assert (pushed["message"], pushed["read"]) == ("Only for you", False)
    assert pushed["id"] == (await page(bob))["notifications"][0]["id"]
    assert replied["actions_taken"] == [
        {"type": "notify_user", "user_id": bob.name, "message": "Only for you"}
    ]


async def test_a_target_that_does_not_exist_is_refused_and_the_model_told_so(
    someone: Someone, database: asyncpg.Connection
) -> None:
    ann, nobody = await known(someone, "ann"), word("nobody")
    state = await ann.ask(notify(nobody, "Hello?"))
    assert state["status"] == "done"
    assert f"There is no user '{nobody}' in this organisation; nothing was sent." in state["reply"]["content"]
    assert not state["reply"]["actions"]
    assert await database.fetchval("SELECT count(*) FROM notifications WHERE to_user_id = $1", nobody) == 0


async def test_a_user_of_another_tenant_can_not_be_notified(
    someone: Someone, database: asyncpg.Connection
) -> None:
    ann, other = await known(someone, "ann"), await known(someone, "other", "globex")
    state = await ann.ask(notify(other.name, "Psst"))
    assert f"There is no user '{other.name}' in this organisation" in state["reply"]["content"]
    assert (
        await database.fetchval("SELECT count(*) FROM notifications WHERE to_user_id = $1", other.name) == 0
    )
    assert await listed(other) == []


@pytest.mark.scenario("002", "User retrieves their notifications")
async def test_users_get_their_own_notifications_of_their_own_tenant_newest_first(someone: Someone) -> None:
    ann, bob = await known(someone, "ann"), await known(someone, "bob")
    elsewhere, namesake = await known(someone, "zoe", "globex"), User(ann.url, bob.name, "globex")
    assert await listed(namesake) == []
    for message in ("first", "second", "third"):
        await ann.ask(notify(bob.name, message))
    await elsewhere.ask(notify(bob.name, "from globex to globex"))
    assert await listed(bob) == ["third", "second", "first"]
    assert await listed(ann) == []
    assert await listed(namesake) == ["from globex to globex"]
    await namesake.http.aclose()


async def test_several_calls_in_one_answer_are_several_notifications(
    someone: Someone, gemini: ScriptedGemini
) -> None:
    ann, bob = await known(someone, "ann"), await known(someone, "bob")
    both = [
        {"name": "notify_user", "args": {"user_id": bob.name, "message": said}} for said in ("one", "two")
    ]
    gemini.script(calls(*both), text("Told."))
    assert (await ann.ask("Tell Bob twice"))["reply"]["content"] == "Told."
    assert sorted(await listed(bob)) == ["one", "two"]


async def test_pages_miss_and_repeat_nothing(someone: Someone) -> None:
    ann, bob = await known(someone, "ann"), await known(someone, "bob")
    for number in range(5):
        await ann.ask(notify(bob.name, f"n{number}"))
    seen, cursor, sizes = [], {}, []
    while True:
        got = await page(bob, limit=2, **cursor)
        seen += [notification["message"] for notification in got["notifications"]]
        sizes.append(len(got["notifications"]))
        if not got.get("next"):
            break
        cursor = {"cursor": got["next"]}
    assert seen == ["n4", "n3", "n2", "n1", "n0"]
    assert sizes == [2, 2, 1]


async def test_a_cursor_or_limit_that_cannot_be_one_is_refused(ann: User) -> None:
    for query in ({"cursor": "nonsense"}, {"limit": 0}, {"limit": 201}, {"limit": "x"}):
        response = await ann.http.get("/api/notifications", params=query)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "INVALID_REQUEST"


@pytest.mark.scenario("002", "Notification marked as read")
async def test_marking_a_notification_as_read_records_when_and_again_changes_nothing(
    someone: Someone, database: asyncpg.Connection
) -> None:
    ann, bob = await known(someone, "ann"), await known(someone, "bob")
    await ann.ask(notify(bob.name, "Read me"))
    await ann.ask(notify(bob.name, "Not yet"))
    name = (await page(bob))["notifications"][1]["id"]
    first = await bob.http.patch(f"/api/notifications/{name}/read")
    again = await bob.http.patch(f"/api/notifications/{name}/read")
    row = await database.fetchrow("SELECT read, read_at FROM notifications WHERE id = $1", name)
    assert (first.status_code, again.status_code) == (200, 200)
    assert (first.json()["message"], first.json()["read"]) == ("Read me", True)
    assert again.json() == first.json()
    assert row is not None
    assert row["read"] is True
    assert datetime.fromisoformat(first.json()["read_at"]) == row["read_at"]
    assert abs(datetime.now(UTC) - row["read_at"]) < timedelta(seconds=5)
    assert await listed(bob, unread=True) == ["Not yet"]
    assert await listed(bob) == ["Not yet", "Read me"]


async def test_nobody_marks_the_notification_of_another_as_read(
    someone: Someone, database: asyncpg.Connection
) -> None:
    ann, bob = await known(someone, "ann"), await known(someone, "bob")
    await ann.ask(notify(bob.name, "Mine"))
    name = (await page(bob))["notifications"][0]["id"]
    for wrong in (name, uuid4(), "nonsense"):
        response = await ann.http.patch(f"/api/notifications/{wrong}/read")
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "NOTIFICATION_NOT_FOUND"
    assert await database.fetchval("SELECT read FROM notifications WHERE id = $1", name) is False
