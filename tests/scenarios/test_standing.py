"""The one standing conversation that a user has with each agent, and `/conversations`, which is about it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tertulia.embedded import Services
from tests.scenarios.conftest import Someone, word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import hang, text
from tests.support.instance import Instance
from tests.support.observe import asked, eventually
from tests.support.refusals import refused
from tests.support.sse import saying, types, words
from tests.support.standing import made_agent, paired, standing, start

Attempts = Callable[[], Awaitable[int]]
ROUTES = (
    ("GET", "/conversations/{}"),
    ("GET", "/conversations/{}/messages"),
    ("POST", "/conversations/{}/messages"),
)


@pytest.fixture(scope="module")
def second(settings: dict[str, Any], folder: Path) -> Generator[Instance]:
    """Another server process on the same database."""
    with Instance("serve", folder, "--port", "0", "--no-worker", **settings) as running:
        yield running


@pytest.fixture
async def attempts(database: asyncpg.Connection) -> AsyncGenerator[Attempts]:
    """How often a conversation was tried to be inserted, whether a row came of it or not."""
    await database.execute(
        """
        CREATE SEQUENCE attempts;
        CREATE FUNCTION count_attempt() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN
            PERFORM nextval('public.attempts');
            RETURN new;
        END $$;
        CREATE TRIGGER counted BEFORE INSERT ON conversations FOR EACH ROW EXECUTE FUNCTION count_attempt();
        """
    )

    async def count() -> int:
        return await database.fetchval("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM attempts")

    yield count
    await database.execute("DROP FUNCTION count_attempt CASCADE; DROP SEQUENCE attempts")


async def inserted(connection: asyncpg.Connection, user: User, agent: str) -> None:
    """A conversation of this user with this agent, written past the server, as the server would write it."""
    async with connection.transaction():
        await connection.execute(
            "SELECT set_config('tertulia.tenant', $1, true), set_config('tertulia.user', $2, true)",
            user.tenant,
            user.name,
        )
        await connection.execute(
            "INSERT INTO conversations (tenant, id, user_id, agent_id, session_id) VALUES ($1, $2, $3, $4, $5)",
            *(user.tenant, uuid4(), user.name, agent, uuid4().hex),
        )


async def crowded(database: asyncpg.Connection) -> bool:
    """Whether many have found no conversation and are held up where they would insert one."""
    waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'conversations'::regclass AND NOT granted"
    return await database.fetchval(waiting) >= 16


def moment(conversation: dict[str, Any], name: str) -> datetime:
    return datetime.fromisoformat(conversation[name])


@pytest.mark.scenario("001", "Get conversation by agent ID")
async def test_the_conversation_with_an_agent_is_made_when_first_asked_for_and_got_from_then_on(
    someone: Someone, database: asyncpg.Connection
) -> None:
    pair = await paired(someone)
    began = datetime.now(UTC)
    made = await pair.standing()
    row = await database.fetchrow("SELECT * FROM conversations WHERE agent_id = $1", pair.agent)
    assert row is not None
    assert (row["tenant"], row["user_id"], str(row["id"])) == ("acme", pair.reader.name, made["id"])
    assert (made["user_id"], made["agent_id"]) == (pair.reader.name, pair.agent)
    assert UUID(made["id"]).version == 4
    assert (
        began - timedelta(seconds=1) < moment(made, "started_at") < datetime.now(UTC) + timedelta(seconds=1)
    )
    assert made["last_message_at"] is None
    assert await pair.standing() == made
    assert await standing(pair.reader, made["id"]) == made


async def test_only_an_agent_that_is_known_has_a_conversation(
    someone: Someone, database: asyncpg.Connection
) -> None:
    pair, elsewhere = await paired(someone), await paired(someone, tenant="globex")
    for name in (word("nobody"), elsewhere.agent, "no%20name", "a" * 65):
        refused(await pair.reader.http.get(f"/conversations/{name}"), 404, "AGENT_NOT_FOUND")
    refused(await pair.reader.http.get(f"/conversations/{uuid4()}"), 404, "CONVERSATION_NOT_FOUND")
    query = "SELECT count(*) FROM conversations WHERE user_id = $1"
    assert await database.fetchval(query, pair.reader.name) == 0
    assert (await standing(pair.reader, "assistant"))["agent_id"] == "assistant"


@pytest.mark.scenario("001", "Separate conversations per agent")
async def test_what_is_said_to_one_agent_leaves_the_conversation_with_another_untouched(
    someone: Someone, gemini: ScriptedGemini
) -> None:
    with_b = await paired(someone)
    with_c = replace(with_b, agent=await made_agent(with_b.admin))
    b, c = (await with_b.standing())["id"], (await with_c.standing())["id"]
    await with_c.say(c, secret := f"{word('secret')} for C alone")
    before = await with_c.standing(), await with_c.messages(c)
    await with_b.say(b, question := f"{word()} What did I tell the other one?")
    assert b != c
    assert asked(gemini, question).said == [("user", question)]
    assert [each["content"] for each in (await with_b.messages(b))["messages"]][:1] == [question]
    assert (await with_c.standing(), await with_c.messages(c)) == before
    assert before[1]["messages"][0]["content"] == secret


@pytest.mark.scenario("001", "Query before insert")
async def test_an_existing_conversation_is_looked_up_and_nothing_is_tried_to_be_inserted(
    someone: Someone, attempts: Attempts
) -> None:
    pair = await paired(someone)
    briefings = [await pair.brief(), await pair.brief()]
    assert await attempts() == 0
    made = await pair.standing()
    assert await attempts() == 1
    assert await pair.standing() == made
    for briefing in briefings:
        assert (await pair.start(briefing))["conversation_id"] == made["id"]
    again = await pair.reader.http.post("/api/conversations", json={"agent_id": pair.agent})
    assert (again.status_code, again.json()["id"]) == (200, made["id"])
    assert await attempts() == 1


@pytest.mark.scenario("001", "Concurrent conversation creation attempts")
async def test_a_hundred_first_contacts_at_two_servers_make_one_conversation_that_has_each_briefing_once(
    second: Instance, someone: Someone, database: asyncpg.Connection
) -> None:
    pair = await paired(someone)
    briefings = [await pair.brief(f"briefing {number}") for number in range(33)]
    async with User(second.url, pair.reader.name) as there:
        doors = (pair.reader, there)
        contacts = [standing(there, pair.agent)]
        for number, briefing in enumerate(briefings):
            contacts += [start(door, briefing) for door in doors]
            contacts.append(standing(doors[number % 2], pair.agent))
        async with database.transaction():
            await database.execute("LOCK TABLE conversations IN SHARE MODE")
            coming = asyncio.gather(*contacts)
            await eventually(lambda: crowded(database))
        found = await coming
    (name,) = {answer.get("conversation_id") or answer["id"] for answer in found}
    assert len(found) == 100
    rows = await database.fetch("SELECT id FROM conversations WHERE agent_id = $1", pair.agent)
    assert [str(row["id"]) for row in rows] == [name]
    cards = (await pair.messages(name))["messages"]
    assert sorted(card["briefing_id"] for card in cards) == sorted(briefings)
    assert [card["seq"] for card in cards] == list(range(1, 34))
    assert {answer["message_id"] for answer in found if "message_id" in answer} == {c["id"] for c in cards}
    listed = (await pair.reader.http.get("/briefings")).json()["briefings"]
    assert sorted(each["id"] for each in listed) == sorted(briefings)
    assert {(each["conversation_id"], each["status"]) for each in listed} == {(name, "actioned")}


@pytest.mark.scenario("001", "Unique constraint prevents duplicate conversations")
async def test_another_conversation_of_the_same_two_is_rejected_and_the_first_one_is_served_on(
    someone: Someone, backends: Services, database: asyncpg.Connection
) -> None:
    pair = await paired(someone)
    made, other = await pair.standing(), replace(pair, agent=await made_agent(pair.admin))
    server_role = await asyncpg.connect(backends.database_url)
    assert await server_role.fetchval("SELECT current_user") == "tertulia"
    with pytest.raises(asyncpg.UniqueViolationError) as rejected:
        await inserted(server_role, pair.reader, pair.agent)
    await inserted(server_role, pair.reader, other.agent)
    await server_role.close()
    assert rejected.value.constraint_name == "conversations_standing"
    assert await pair.standing() == made
    await pair.say(made["id"], question := f"{word()} Still you?")
    assert (await pair.messages(pair.agent))["messages"][0]["content"] == question
    rows = await database.fetch("SELECT id, agent_id FROM conversations WHERE user_id = $1", pair.reader.name)
    assert {(str(row["id"]), row["agent_id"]) for row in rows} == {
        (made["id"], pair.agent),
        ((await other.standing())["id"], other.agent),
    }
    assert len(rows) == 2


async def test_two_briefings_that_arrive_at_once_at_two_servers_meet_in_one_conversation(
    second: Instance, someone: Someone
) -> None:
    pair = await paired(someone)
    for _ in range(5):
        pair = replace(pair, agent=await made_agent(pair.admin))
        async with User(second.url, pair.reader.name) as there:
            briefings = [await pair.brief(), await pair.brief()]
            doors = zip((pair.reader, there), briefings, strict=True)
            one, other = await asyncio.gather(*(start(*each) for each in doors))
        assert one["conversation_id"] == other["conversation_id"]
        cards = (await pair.messages(one["conversation_id"]))["messages"]
        assert sorted(card["briefing_id"] for card in cards) == sorted(briefings)


async def test_the_time_of_the_last_message_moves_with_each_and_that_of_the_start_never(
    someone: Someone,
) -> None:
    pair = await paired(someone)
    made = await pair.standing()
    started, name = made["started_at"], made["id"]
    last = moment(made, "started_at")
    for step in ("card", "question and answer", "failure"):
        if step == "card":
            await pair.start(await pair.brief())
        else:
            await pair.say(name, 'Hi [[failure {"status": 403}]]' if step == "failure" else "Hi")
        newest = (await pair.messages(name))["messages"][-1]
        now = await pair.standing()
        assert now["started_at"] == started
        assert abs(moment(now, "last_message_at") - moment(newest, "created_at")) < timedelta(seconds=0.1), (
            step
        )
        assert moment(now, "last_message_at") > last, step
        last = moment(now, "last_message_at")
    answered, failed = (await pair.reader.conversation(name))["turns"]
    assert (answered["status"], failed["status"]) == ("done", "failed")
    assert moment(answered, "endedAt") < last < moment(failed, "endedAt")


@pytest.mark.scenario("001", "Unauthorized conversation access")
async def test_a_foreign_conversation_is_forbidden_and_nothing_is_said_of_it(someone: Someone) -> None:
    pair, ann, far = await paired(someone), await someone("ann"), await someone("far", "globex")
    namesake = User(pair.reader.url, pair.reader.name, "globex")
    name = (await pair.standing())["id"]
    await pair.say(name, secret := word("secret"))
    before = await pair.messages(name)
    for method, path in ROUTES:
        body = {"json": {"content": "Let me in"}} if method == "POST" else {}
        answer = await ann.http.request(method, path.format(name), **body)
        assert refused(answer, 403, "FORBIDDEN") == {"code": "FORBIDDEN", "message": "You may not do this."}
        assert not any(told in answer.text for told in (secret, pair.reader.name, pair.agent, name))
        for stranger in (far, namesake):
            theirs = await stranger.http.request(method, path.format(name), **body)
            never = await stranger.http.request(method, path.format(uuid4()), **body)
            refused(theirs, 404, "CONVERSATION_NOT_FOUND")
            assert theirs.json() == never.json()
        nobody = await ann.http.request(method, path.format(name), headers={"Authorization": ""}, **body)
        refused(nobody, 401, "UNAUTHENTICATED")
    assert await pair.messages(name) == before
    await namesake.http.aclose()


async def test_a_foreign_conversation_that_was_deleted_never_was(someone: Someone) -> None:
    pair, ann = await paired(someone), await someone("ann")
    name = (await pair.standing())["id"]
    assert (await pair.reader.http.delete(f"/api/conversations/{name}")).status_code == 200
    refused(await ann.http.get(f"/conversations/{name}"), 404, "CONVERSATION_NOT_FOUND")
    assert (await pair.standing())["id"] != name


@pytest.mark.scenario("001", "Text message storage")
async def test_a_text_is_stored_as_the_users_message_of_the_conversation(
    someone: Someone, database: asyncpg.Connection
) -> None:
    pair = await paired(someone)
    name = (await pair.standing())["id"]
    await pair.say(name, "为什么会这样?")
    asking, answering = (await pair.messages(name))["messages"]
    row = await database.fetchrow("SELECT * FROM messages WHERE id = $1", UUID(asking["id"]))
    assert row is not None
    assert (asking["role"], asking["content_type"], asking["content"]) == ("user", "text", "为什么会这样?")
    assert (answering["role"], answering["content_type"]) == ("assistant", "text")
    assert (asking["conversation_id"], str(row["conversation_id"])) == (name, name)
    assert (row["tenant"], row["user_id"], row["role"]) == ("acme", pair.reader.name, "user")
    assert (row["content_type"], row["content"]) == ("text", '"为什么会这样?"')
    assert moment(asking, "created_at") == row["created_at"]
    assert abs(datetime.now(UTC) - row["created_at"]) < timedelta(seconds=10)


@pytest.mark.scenario("001", "Send message with streaming response")
async def test_the_answer_is_streamed_while_the_model_is_still_speaking_and_ends_with_the_turn(
    someone: Someone, gemini: ScriptedGemini
) -> None:
    pair = await paired(someone)
    name = (await pair.standing())["id"]
    gemini.script(hang(said="因为"), text("因为返工率太高。", chunks=4, delay=0.03))
    async with saying(pair.reader, name, "为什么会这样?") as stream:
        first = await stream.heard("text_delta")
        asking = await stream.heard("conversation:user_message")
        state = await pair.reader.state(asking.inner["messageId"])
        await pair.reader.http.post(f"/api/conversations/{name}/abort")
        await stream.over()
    heard = await pair.say(name, "为什么会这样?")
    assert (first.inner, state["status"]) == ({"text": "因为"}, "running")
    assert [kind for kind in types(heard) if kind != "text_delta"] == [
        "conversation:user_message",
        "message_start",
        "message_complete",
        "turn_end",
    ]
    assert words(heard) == "因为返工率太高。"
    assert heard[-2].inner["text"] == "因为返工率太高。"
    assert {each.data["agentId"] for each in heard[1:]} == {pair.agent}
    assert (await pair.messages(name))["messages"][-1]["content"] == "因为返工率太高。"


async def test_ones_conversations_are_listed_the_last_active_first_in_pages_that_miss_and_repeat_nothing(
    someone: Someone,
) -> None:
    pair = await paired(someone)
    made = [await make(pair.reader, title=f"c{number}") for number in range(4)]
    made.append(await make(pair.reader, agent_id=pair.agent))
    await pair.reader.ask("Hi", made[1]["id"])
    hidden = await make(pair.reader)
    await pair.reader.http.delete(f"/api/conversations/{hidden['id']}")
    seen, sizes, cursor = [], [], {}
    while True:
        response = await pair.reader.http.get("/api/conversations", params={"limit": 2, **cursor})
        assert response.status_code == 200, response.text
        seen += [each["id"] for each in response.json()["conversations"]]
        sizes.append(len(response.json()["conversations"]))
        if not response.json().get("next"):
            break
        cursor = {"cursor": response.json()["next"]}
    assert seen == [made[number]["id"] for number in (1, 4, 3, 2, 0)]
    assert sizes == [2, 2, 1]
    for query in ({"cursor": "nonsense"}, {"cursor": f"1.{uuid4()}x"}, {"limit": 0}, {"limit": 201}):
        refused(await pair.reader.http.get("/api/conversations", params=query), 400, "INVALID_REQUEST")


async def make(user: User, key: str | None = None, status: int = 201, **wanted: Any) -> dict[str, Any]:
    headers = {"Idempotency-Key": key} if key else {}
    response = await user.http.post("/api/conversations", json=wanted, headers=headers)
    assert response.status_code == status, response.text
    return response.json()


async def test_a_conversation_is_made_once_for_an_agent_a_handle_or_a_key(someone: Someone) -> None:
    pair, key, handle = await paired(someone), word("key"), word("handle")
    with_agent = await make(pair.reader, agent_id=pair.agent)
    assert (with_agent["agentId"], with_agent["id"]) == (pair.agent, (await pair.standing())["id"])
    assert await make(pair.reader, status=200, agent_id=pair.agent) == with_agent
    named = await make(pair.reader, session_id=handle, title="A trip to the sea")
    assert (named["handle"], named["title"]) == (handle, "A trip to the sea")
    assert await make(pair.reader, status=200, session_id=handle) == named
    keyed = await make(pair.reader, key, title="Once")
    assert await make(pair.reader, key, title="Once") == keyed
    other = await pair.reader.http.post(
        "/api/conversations", json={"title": "Twice"}, headers={"Idempotency-Key": key}
    )
    refused(other, 409, "IDEMPOTENCY_KEY_REUSED")
    assert (await make(pair.reader, title="Once"))["id"] != keyed["id"]
    assert (await make(pair.admin, key, title="Once"))["id"] != keyed["id"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"agent_id": "nobody-knows"}, 404, "AGENT_NOT_FOUND"),
        ({"agent_id": "assistant", "title": "Mine"}, 400, "INVALID_REQUEST"),
        ({"title": "字" * 51}, 400, "INVALID_REQUEST"),
        ({"session_id": ""}, 400, "INVALID_REQUEST"),
        ({"user_id": "vera"}, 400, "INVALID_REQUEST"),
    ],
)
async def test_a_conversation_that_cannot_be_made_is_refused(
    ann: User, body: dict[str, Any], status: int, code: str
) -> None:
    refused(await ann.http.post("/api/conversations", json=body), status, code)
