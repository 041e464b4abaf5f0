"""Who may leave how many notifications: sixty an hour from one user to another."""

from uuid import uuid4

import asyncpg

from tertulia.core.model import Owner
from tertulia.embedded import Services
from tertulia.store.database import Database
from tertulia.store.notifications import Notification, Notifications
from tests.scenarios.conftest import Someone, word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import calls, text
from tests.support.observe import asked

SIXTIETH = uuid4()
SENT = """
    INSERT INTO notifications (tenant, id, from_user_id, to_user_id, message, created_at)
    SELECT 'acme', gen_random_uuid(), $1, $2, 'n' || n, now() - interval '50 minutes' FROM generate_series(1, $3) AS n
"""
STORED = "SELECT count(*) FROM notifications WHERE from_user_id = $1 AND to_user_id = $2"
AGE = "UPDATE notifications SET created_at = created_at - interval '11 minutes' WHERE to_user_id = $1"


async def known(someone: Someone, name: str, tenant: str = "acme") -> User:
    """A user whom the server has met."""
    user = await someone(name, tenant)
    assert (await user.http.get("/api/notifications")).status_code == 200
    return user


async def notifies(gemini: ScriptedGemini, sender: User, target: User, *messages: str) -> list[str]:
    """What the model is told after each call."""
    made = [
        {"name": "notify_user", "args": {"user_id": target.name, "message": message}} for message in messages
    ]
    gemini.script(calls(*made), text("So be it."))
    state = await sender.ask(question := f"{word()} Tell them")
    assert (state["status"], state["reply"]["content"]) == ("done", "So be it.")
    return [result["response"]["output"] for result in asked(gemini, question).tool_results]


async def test_the_61st_notification_within_an_hour_is_refused_and_the_model_told_so(
    someone: Someone, gemini: ScriptedGemini, database: asyncpg.Connection
) -> None:
    ann, bob, eve = [await known(someone, name) for name in ("ann", "bob", "eve")]
    await database.execute(SENT, ann.name, bob.name, 59)
    refusal = (
        f"'{bob.name}' has had very many notifications from here within the last hour; nothing was sent."
    )
    async with bob.socket() as socket:
        assert await notifies(gemini, ann, bob, "60th", "61st") == [f"{bob.name} has been notified.", refusal]
        assert await notifies(gemini, ann, bob, "62nd") == [refusal]
        assert await notifies(gemini, eve, bob, "Mine") == [f"{bob.name} has been notified."]
        await socket.until("notification", message="Mine")
    assert [frame["message"] for frame in socket.seen if frame["type"] == "notification"] == ["60th", "Mine"]
    assert await database.fetchval(STORED, ann.name, bob.name) == 60
    assert await notifies(gemini, ann, eve, "And you?") == [f"{eve.name} has been notified."]
    assert await notifies(gemini, bob, ann, "Stop it") == [f"{ann.name} has been notified."]


async def test_an_hour_later_there_may_be_sixty_more(
    someone: Someone, gemini: ScriptedGemini, database: asyncpg.Connection
) -> None:
    ann, bob = await known(someone, "ann"), await known(someone, "bob")
    await database.execute(SENT, ann.name, bob.name, 60)
    [refused] = await notifies(gemini, ann, bob, "Now?")
    assert refused.endswith("nothing was sent.")
    await database.execute(AGE, bob.name)
    assert await notifies(gemini, ann, bob, "Now?") == [f"{bob.name} has been notified."]
    assert await database.fetchval(STORED, ann.name, bob.name) == 61


async def test_the_sixtieth_is_not_refused_when_it_is_told_again(
    someone: Someone, backends: Services, database: asyncpg.Connection
) -> None:
    """As after a crash between what was stored and what the model was told of it."""
    ann, bob = await known(someone, "ann"), await known(someone, "bob")
    await database.execute(SENT, ann.name, bob.name, 59)
    opened = await Database.open(backends.database_url, 2)
    try:
        for _ in range(2):
            sent = await Notifications(opened).send(Owner("acme", ann.name), bob.name, "60th", SIXTIETH)
            assert isinstance(sent, Notification)
        other = await Notifications(opened).send(Owner("acme", ann.name), bob.name, "61st", uuid4())
    finally:
        await opened.close()
    assert other == "flooded"
    assert await database.fetchval(STORED, ann.name, bob.name) == 60


async def test_the_same_names_in_another_tenant_are_other_people(
    someone: Someone, gemini: ScriptedGemini, database: asyncpg.Connection
) -> None:
    ann, bob = await known(someone, "ann"), await known(someone, "bob")
    await database.execute(SENT, ann.name, bob.name, 60)
    async with User(ann.url, ann.name, "globex") as sender, User(ann.url, bob.name, "globex") as target:
        assert (await target.http.get("/api/notifications")).status_code == 200
        assert await notifies(gemini, sender, target, "Hi") == [f"{bob.name} has been notified."]
