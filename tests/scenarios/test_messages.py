"""Sending a message and being answered, in the running server."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from redis.asyncio import Redis

from tests.scenarios.conftest import Someone, word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.instance import Instance
from tests.support.observe import asked, eventually

STREAM, GROUP = "tertulia:turns", "workers"


async def entry(valkey: Redis, message: str) -> tuple[str, dict[str, str]] | None:
    """The entry of the stream that is about this message."""
    found = await valkey.xrange(STREAM)
    return next(((name, fields) for name, fields in found if fields["message_id"] == message), None)


async def pending(valkey: Redis) -> dict[str, str]:
    """The entries that a worker has taken and not acknowledged, with the name of that worker."""
    rows = await valkey.xpending_range(STREAM, GROUP, "-", "+", 1000)
    return {row["message_id"]: row["consumer"] for row in rows}


@pytest.mark.scenario("002", "Message enqueued for processing")
async def test_a_message_is_acknowledged_at_once_and_added_to_the_stream(ann: User, valkey: Redis) -> None:
    await ann.ask("warm up")
    began = time.monotonic()
    response = await ann.post('[[text {"said": "At last", "first": 1.5}]]', session := word("s"))
    took = time.monotonic() - began
    sent = response.json()
    _, fields = await eventually(lambda: entry(valkey, sent["message_id"]))
    assert response.status_code == 202
    assert took < 1
    assert sent.keys() == {"status", "message_id", "turn_id", "session_id", "conversation_id"}
    assert (sent["status"], sent["session_id"]) == ("queued", session)
    assert fields == {
        "tenant_id": "acme",
        "user_id": "ann",
        "conversation_id": sent["conversation_id"],
        "message_id": sent["message_id"],
    }
    assert (await ann.answered(sent))["reply"]["content"] == "At last"


@pytest.mark.scenario("002", "Worker consumes message from stream")
@pytest.mark.scenario("002", "Message processing completes")
async def test_an_entry_is_pending_until_its_message_is_answered_and_acknowledged_then(
    ann: User, valkey: Redis
) -> None:
    async with ann.socket() as socket:
        sent = await ann.send('[[text {"said": "Slowly", "first": 1}]]')
        name, _ = await eventually(lambda: entry(valkey, sent["message_id"]))

        async def consumer() -> str | None:
            return (await pending(valkey)).get(name)

        assert await eventually(consumer)
        assert (await ann.state(sent["message_id"]))["status"] in ("queued", "running")
        pushed = await socket.until("message", conversation_id=sent["conversation_id"])

        async def acknowledged() -> bool:
            return name not in await pending(valkey) and await entry(valkey, sent["message_id"]) is None

        assert await eventually(acknowledged)
    assert pushed["content"] == "Slowly"
    assert (await valkey.xpending(STREAM, GROUP))["pending"] == 0


@pytest.mark.scenario("002", "LLM generates contextual response")
async def test_a_message_is_answered_by_the_model_which_knows_tenant_and_history(
    someone: Someone, gemini: ScriptedGemini
) -> None:
    ann = await someone("ann", "globex")
    first = await ann.ask(
        hello := f'{word()} [[text {{"said": "Hi Ann", "chunks": 3}}]]', session := word("s")
    )
    await ann.ask(again := f"{word()} again", session)
    assert first["status"] == "done"
    assert first["reply"]["content"] == "Hi Ann"
    assert first["turns"][0]["model"] == "google_genai:gemini-2.5-flash"
    assert first["turns"][0]["agent_id"] == "assistant"
    request = asked(gemini, again)
    assert request.model == "gemini-2.5-flash"
    assert request.said == [("user", hello), ("model", "Hi Ann"), ("user", again)]
    assert f"the user {ann.name!r} of the organisation 'globex'" in request.system
    assert {"notify_user", "present"} <= set(request.tools)


@pytest.mark.scenario("002", "LLM generates contextual response")
async def test_the_actions_that_the_model_took_come_with_the_reply(someone: Someone) -> None:
    ann, bob = await someone("ann"), await someone("bob")
    await bob.http.get("/api/notifications")
    state = await ann.ask(
        f'[[call {{"name": "notify_user", "args": {{"user_id": "{bob.name}", "message": "Lunch?"}}}}]]'
    )
    assert state["status"] == "done", state
    assert state["reply"]["actions"] == [{"type": "notify_user", "user_id": bob.name, "message": "Lunch?"}]


@pytest.mark.scenario("002", "Conversation context preserved")
async def test_the_model_is_shown_the_earlier_messages_of_the_session(
    ann: User, gemini: ScriptedGemini
) -> None:
    session = word("s")
    for question in ("one", "two", "three"):
        await ann.ask(f'{question} [[text {{"said": "answer to {question}"}}]]', session)
    await ann.ask(last := f"{word()} and now?", session)
    assert [(role, said.split(" [[")[0]) for role, said in asked(gemini, last).said] == [
        ("user", "one"),
        ("model", "answer to one"),
        ("user", "two"),
        ("model", "answer to two"),
        ("user", "three"),
        ("model", "answer to three"),
        ("user", last),
    ]


@pytest.mark.scenario("002", "Memory isolated per user")
async def test_two_users_with_the_same_session_id_share_nothing(
    ann: User, bob: User, gemini: ScriptedGemini
) -> None:
    session = word("s")
    of_ann = await ann.send("My secret is 42", session)
    await ann.answered(of_ann)
    of_bob = await bob.send(question := f"{word()} What is the secret?", session)
    await bob.answered(of_bob)
    assert asked(gemini, question).said == [("user", question)]
    assert of_ann["conversation_id"] != of_bob["conversation_id"]
    assert (await bob.http.get(f"/api/messages/{of_ann['message_id']}")).status_code == 404
    assert (await bob.http.get(f"/api/conversations/{of_ann['conversation_id']}")).status_code == 404


@pytest.mark.scenario("002", "Memory isolated per user")
async def test_users_of_the_same_name_in_two_tenants_share_nothing(
    server: Instance, gemini: ScriptedGemini
) -> None:
    name, session = word("cleo"), word("s")
    async with User(server.url, name, "acme") as here, User(server.url, name, "globex") as there:
        sent = await here.send("Acme's secret is 42", session)
        await here.answered(sent)
        await there.ask(question := f"{word()} What is the secret?", session)
        response = await there.http.get(f"/api/conversations/{sent['conversation_id']}")
    assert asked(gemini, question).said == [("user", question)]
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "CONVERSATION_NOT_FOUND"


@pytest.mark.scenario("002", "New session starts fresh")
async def test_a_new_session_begins_with_nothing_of_the_earlier_ones(
    ann: User, gemini: ScriptedGemini
) -> None:
    await ann.ask("Remember the number 42", word("s"))
    await ann.ask(question := f"{word()} Which number?", word("s"))
    await ann.ask(unnamed := f"{word()} And without a session?")
    assert asked(gemini, question).said == [("user", question)]
    assert asked(gemini, unnamed).said == [("user", unnamed)]


@pytest.mark.scenario("002", "User message stored")
async def test_a_users_message_is_stored_with_its_role_tenant_user_session_and_time(
    ann: User, database: asyncpg.Connection
) -> None:
    sent = await ann.send(said := f"{word()} Grüße, 世界", session := word("s"))
    row = await database.fetchrow("SELECT * FROM messages WHERE id = $1", UUID(sent["message_id"]))
    assert row is not None
    assert (row["role"], row["content_type"]) == ("user", "text")
    assert row["content"] == f'"{said}"'
    assert (row["tenant"], row["user_id"], row["session_id"]) == ("acme", "ann", session)
    assert str(row["conversation_id"]) == sent["conversation_id"]
    assert abs(datetime.now(UTC) - row["created_at"]) < timedelta(seconds=5)
    await ann.answered(sent)


@pytest.mark.scenario("002", "Assistant response stored")
async def test_the_answer_is_stored_once_and_linked_to_the_session(
    ann: User, database: asyncpg.Connection
) -> None:
    state = await ann.ask('[[text {"said": "Stored"}]]', session := word("s"))
    rows = await database.fetch(
        "SELECT * FROM messages WHERE conversation_id = $1 AND role = 'assistant'",
        UUID(state["conversation_id"]),
    )
    assert len(rows) == 1
    assert rows[0]["content"] == '"Stored"'
    assert (rows[0]["tenant"], rows[0]["user_id"], rows[0]["session_id"]) == ("acme", "ann", session)
    assert str(rows[0]["turn_id"]) == state["turns"][0]["turn_id"]
    assert rows[0]["agent_id"] == "assistant"
    assert abs(datetime.now(UTC) - rows[0]["created_at"]) < timedelta(seconds=10)


async def test_messages_sent_during_an_answer_are_answered_in_order(
    ann: User, gemini: ScriptedGemini
) -> None:
    session, mark = word("s"), word()
    first = await ann.send(f'{mark} 1 [[text {{"said": "r1", "first": 0.5}}]]', session)
    others = [await ann.send(f'{mark} {n} [[text {{"said": "r{n}"}}]]', session) for n in (2, 3)]
    states = [await ann.answered(sent) for sent in (first, *others)]
    assert [state["reply"]["content"] for state in states] == ["r1", "r2", "r3"]
    last = asked(gemini, f'{mark} 3 [[text {{"said": "r3"}}]]')
    assert [said.split(" [[")[0] for _, said in last.said] == [
        f"{mark} 1",
        "r1",
        f"{mark} 2",
        "r2",
        f"{mark} 3",
    ]
    history = await ann.conversation(first["conversation_id"])
    assert [(m["role"], m["seq"]) for m in history["messages"]] == [
        ("user", 1),
        ("user", 2),
        ("user", 3),
        ("assistant", 4),
        ("assistant", 5),
        ("assistant", 6),
    ]


async def test_a_repeat_with_the_same_idempotency_key_is_answered_as_the_first_was(
    ann: User, database: asyncpg.Connection
) -> None:
    key, session = word("key"), word("s")
    first = await ann.send("Once only", session, key=key)
    await ann.answered(first)
    assert await ann.send("Once only", session, key=key) == first
    count = await database.fetchval(
        "SELECT count(*) FROM messages WHERE conversation_id = $1 AND role = 'user'",
        UUID(first["conversation_id"]),
    )
    assert count == 1


async def test_twenty_repeats_at_once_make_one_message(ann: User, database: asyncpg.Connection) -> None:
    key, session = word("key"), word("s")
    sent = await asyncio.gather(*(ann.send("At once", session, key=key) for _ in range(20)))
    assert len({answer["message_id"] for answer in sent}) == 1
    assert (await ann.answered(sent[0]))["status"] == "done"
    count = await database.fetchval(
        "SELECT count(*) FROM messages WHERE user_id = 'ann' AND session_id = $1 AND role = 'user'", session
    )
    assert count == 1


async def test_an_idempotency_key_with_another_body_is_a_conflict(ann: User, bob: User) -> None:
    key, session = word("key"), word("s")
    first = await ann.send("First", session, key=key)
    refused = await ann.post("Second", session, key=key)
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "IDEMPOTENCY_KEY_REUSED"
    of_bob = await bob.send("Second", session, key=key)
    assert of_bob["message_id"] != first["message_id"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"content": ""}, "MESSAGE_CONTENT_REQUIRED"),
        ({"content": " \u200b\n"}, "MESSAGE_CONTENT_REQUIRED"),
        ({"content": "x" * 10_001}, "MESSAGE_TOO_LONG"),
        ({"content": "a\x00b"}, "INVALID_REQUEST"),
        ({"content": 7}, "INVALID_REQUEST"),
        ({}, "INVALID_REQUEST"),
        ({"content": "hi", "session": "typo"}, "INVALID_REQUEST"),
        ({"content": "hi", "session_id": ""}, "INVALID_REQUEST"),
    ],
)
async def test_a_message_that_cannot_be_one_is_refused_with_its_code(ann: User, body: Any, code: str) -> None:
    response = await ann.http.post("/api/messages", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code


async def test_ten_thousand_characters_of_any_script_are_accepted(ann: User, gemini: ScriptedGemini) -> None:
    said = "語" * 9_991 + word()[:9]
    assert len(said) == 10_000
    assert (await ann.ask(said))["status"] == "done"
    assert asked(gemini, said).said == [("user", said)]


async def test_nobody_without_a_token_may_send(server: Instance, ann: User) -> None:
    body = {"content": "hi"}
    for headers in (
        {"Authorization": ""},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Basic eA=="},
    ):
        response = await ann.http.post("/api/messages", json=body, headers=headers)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "UNAUTHENTICATED"
        assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_an_agent_that_nobody_knows_is_not_found(ann: User) -> None:
    response = await ann.http.post("/api/messages", json={"content": "hi", "agent_id": "nobody"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "AGENT_NOT_FOUND"


async def test_a_conversation_is_read_in_pages_that_miss_and_repeat_nothing(ann: User) -> None:
    session = word("s")
    for n in range(4):
        sent = await ann.send(f'm{n} [[text {{"said": "r{n}"}}]]', session)
        await ann.answered(sent)
    name = sent["conversation_id"]
    newest = await ann.conversation(name, limit=3)
    middle = await ann.conversation(name, limit=3, before=newest["before"])
    oldest = await ann.conversation(name, limit=3, before=middle["before"])
    seqs = [[message["seq"] for message in page["messages"]] for page in (oldest, middle, newest)]
    assert seqs == [[1, 2], [3, 4, 5], [6, 7, 8]]
    assert oldest.get("before") is None
    onward = await ann.conversation(name, limit=3, after=oldest["after"])
    assert [message["seq"] for message in onward["messages"]] == [3, 4, 5]


async def test_ninety_conversations_at_once_are_each_answered_with_their_own(
    ann: User, gemini: ScriptedGemini
) -> None:
    states = await asyncio.gather(*(ann.ask(f'[[text {{"said": "answer {n}"}}]]') for n in range(90)))
    assert [state["reply"]["content"] for state in states] == [f"answer {n}" for n in range(90)]
    assert len({state["conversation_id"] for state in states}) == 90
