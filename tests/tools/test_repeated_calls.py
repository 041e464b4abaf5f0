"""Tool calls whose ids come twice, and a call that a crash made unsure: each happens once, and none is dropped."""

from pathlib import Path
from typing import Any

import asyncpg

from tertulia.embedded import Services
from tests.support.backends import of_superuser, private
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import Answer, calls, text
from tests.support.instance import Instance
from tests.support.observe import eventually

OURS = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tertulia'"
END_OTHERS = f"SELECT pg_terminate_backend(pid) {OURS}"


def notify(target: User, *messages: str) -> Answer:
    """Calls of `notify_user` from a provider that numbers them anew in each round, or not at all."""
    wanted = [
        {"name": "notify_user", "id": "call_0", "args": {"user_id": target.name, "message": m}}
        for m in messages
    ]
    return calls(*wanted)


async def told(user: User) -> list[str]:
    """The notifications of a user, oldest first."""
    response = await user.http.get("/api/notifications")
    return [each["message"] for each in response.json()["notifications"]][::-1]


async def test_calls_of_one_turn_that_have_the_same_id_are_all_made(
    ann: User, bob: User, gemini: ScriptedGemini
) -> None:
    before = await told(bob)
    gemini.script(notify(bob, "one"), notify(bob, "two"), notify(bob, "three", "four"), text("Told."))
    state = await ann.ask("Tell Bob four things")
    assert (state["status"], state["reply"]["content"]) == ("done", "Told.")
    assert (await told(bob))[len(before) :] == ["one", "two", "three", "four"]
    assert [action["message"] for action in state["reply"]["actions"]] == ["one", "two", "three", "four"]
    messages = (await ann.conversation(state["conversation_id"]))["messages"]
    assert len({m["content"]["id"] for m in messages if m["contentType"] == "tool_call"}) == 4


async def test_a_notification_is_pushed_once_though_the_server_dies_before_it_knows_and_the_next_id_is_the_same(
    backends: Services, settings: dict[str, Any], folder: Path, gemini: ScriptedGemini
) -> None:
    mine = settings | await private(backends) | {"lease_seconds": 1, "sweep_seconds": 0.2}
    url = of_superuser(mine["database_url"])
    holder, other = await asyncpg.connect(url), await asyncpg.connect(url)
    with Instance("serve", folder, "--port", "0", **mine) as server:
        async with User(server.url, "ann") as ann, User(server.url, "bob") as bob, bob.socket() as socket:
            assert await told(bob) == []
            begun = socket.seen[0]["cursor"]
            gemini.script(notify(bob, "one"), notify(bob, "two"), text("Told."))
            first, conversation = holder.transaction(), other.transaction()
            await first.start()
            await holder.execute("LOCK notifications IN SHARE MODE")  # the call is on record, and waits
            sent = await ann.send("Tell Bob two things")
            await eventually(lambda: _waiting(other))
            await conversation.start()
            await other.execute("SELECT FROM conversations FOR UPDATE")  # its outcome can not be recorded
            await first.rollback()
            assert (await socket.until("notification"))["message"] == "one"
            await eventually(lambda: _waiting(holder))
            server.kill()
    await holder.execute(END_OTHERS)
    await conversation.rollback()
    with Instance("serve", folder, "--port", "0", **mine) as server:
        async with User(server.url, "ann") as ann, User(server.url, "bob") as bob, bob.socket() as socket:
            await socket.say(type="subscribe", topic="user", afterCursor=begun)
            state = await ann.answered(sent)
            await socket.until("notification", message="two")
            await socket.say(type="ping")
            await socket.until("pong")
    pushed = [frame["message"] for frame in socket.seen if frame["type"] == "notification"]
    assert (state["status"], state["reply"]["content"]) == ("done", "Told.")
    assert state["turns"][0]["attempt"] == 2
    assert pushed == ["one", "two"]
    await holder.close()
    await other.close()


async def _waiting(connection: "asyncpg.Connection[Any]") -> bool:
    """Whether a statement of the server waits for a lock of ours (within a transaction, one looks only once)."""
    return await connection.fetchval(f"SELECT count(*) > 0 {OURS} AND wait_event_type = 'Lock'")
