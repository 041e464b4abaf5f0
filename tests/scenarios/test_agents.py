"""The directory of agents in the running server: who may look, who may change it, and who then answers how."""

import asyncio
from typing import Any

import asyncpg
import pytest

from tertulia.embedded import Services
from tests.scenarios.conftest import Someone, word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.observe import asked
from tests.support.refusals import refused

DEFAULT = {
    "id": "assistant",
    "display_name": "Assistant",
    "kind": "hub",
    "prompt": "You are a helpful assistant. Answer in the language of the person you talk with.",
    "model": None,
    "window": None,
    "context_tokens": None,
    "strategy": "mentioned",
}
ANALYST = {
    "id": "analyst",
    "display_name": "数据分析师",
    "kind": "worker",
    "prompt": "Answer with numbers.",
    "model": "google_genai:gemini-2.5-pro",
    "window": 3,
    "context_tokens": 5000,
    "strategy": "always",
}


@pytest.fixture
def tenant() -> str:
    return word("tenant")


@pytest.fixture
async def admin(someone: Someone, tenant: str) -> User:
    return await someone("admin", tenant, role="admin")


@pytest.fixture
async def user(someone: Someone, tenant: str) -> User:
    return await someone("user", tenant)


async def listed(user: User) -> list[dict[str, Any]]:
    response = await user.http.get("/api/agents")
    assert response.status_code == 200, response.text
    return response.json()["agents"]


async def names(user: User) -> list[str]:
    return [agent["display_name"] for agent in await listed(user)]


async def made(admin: User, **change: Any) -> dict[str, Any]:
    """An agent of the admin's tenant."""
    response = await admin.http.post("/api/agents", json=ANALYST | change)
    assert response.status_code == 201, response.text
    return response.json()


async def ask(
    user: User, content: str, agent: str | None = None, session: str | None = None
) -> dict[str, Any]:
    """Ask this agent, and wait for the end."""
    return await user.answered(await put(user, content, agent, session))


async def put(user: User, content: str, agent: str | None, session: str | None) -> dict[str, Any]:
    body = {"content": content, "agent_id": agent, "session_id": session}
    response = await user.http.post("/api/messages", json={k: v for k, v in body.items() if v})
    assert response.status_code == 202, response.text
    return response.json()


async def test_an_agent_is_made_read_listed_changed_and_removed(admin: User, user: User) -> None:
    assert await listed(user) == [DEFAULT]
    assert await made(admin) == ANALYST
    for reader in (admin, user):
        assert await listed(reader) == [ANALYST, DEFAULT]
        assert (await reader.http.get("/api/agents/analyst")).json() == ANALYST
    change = {"prompt": "Answer in words.", "model": None, "window": None, "kind": "companion"}
    changed = await admin.http.patch("/api/agents/analyst", json=change)
    assert (changed.status_code, changed.json()) == (200, ANALYST | change)
    assert await listed(user) == [ANALYST | change, DEFAULT]
    removed = await admin.http.delete("/api/agents/analyst")
    assert (removed.status_code, removed.json()) == (200, {"status": "removed"})
    assert await listed(user) == [DEFAULT]
    refused(await user.http.get("/api/agents/analyst"), 404, "AGENT_NOT_FOUND")
    refused(await admin.http.patch("/api/agents/analyst", json={}), 404, "AGENT_NOT_FOUND")
    refused(await admin.http.delete("/api/agents/analyst"), 404, "AGENT_NOT_FOUND")


async def test_an_agent_needs_only_an_id_and_a_name(admin: User) -> None:
    response = await admin.http.post("/api/agents", json={"id": "小悦", "display_name": "小悦"})
    assert response.json() == DEFAULT | {
        "id": "小悦",
        "display_name": "小悦",
        "kind": "companion",
        "prompt": "",
    }
    assert (await admin.http.get("/api/agents/小悦")).json()["id"] == "小悦"


@pytest.mark.parametrize("role", ["user", "agent", None])
async def test_nobody_but_an_admin_changes_anything(
    admin: User, someone: Someone, tenant: str, role: str | None
) -> None:
    await made(admin)
    other = await someone("other", tenant, role=role)
    for response in (
        await other.http.post("/api/agents", json=ANALYST | {"id": "mine"}),
        await other.http.patch("/api/agents/analyst", json={"prompt": "Obey me."}),
        await other.http.delete("/api/agents/analyst"),
    ):
        refused(response, 403, "FORBIDDEN")
    assert await listed(admin) == [ANALYST, DEFAULT]


@pytest.mark.parametrize("role", ["user", "agent", "", "Admin"])
async def test_the_database_itself_refuses_whoever_is_no_admin(
    admin: User, tenant: str, backends: Services, role: str
) -> None:
    await made(admin)
    insert = (
        "INSERT INTO agents (tenant, id, display_name, kind, prompt, strategy)"
        " VALUES ($1, $2, 'Mine', 'hub', '', 'always')"
    )
    connection = await asyncpg.connect(backends.database_url)
    async with connection.transaction():
        await connection.execute("SELECT api.enter($1, 'somebody', $2)", tenant, role)
        assert await connection.fetchval("SELECT count(*) FROM agents WHERE tenant = $1", tenant) == 1
        assert await connection.execute("UPDATE agents SET prompt = 'Obey me.'") == "UPDATE 0"
        assert await connection.execute("DELETE FROM agents") == "DELETE 0"
    for given, where in ((role, tenant), ("admin", "elsewhere"), ("admin", "")):
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT api.enter($1, 'somebody', $2)", tenant, given)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(insert, where, word("mine"))
        await transaction.rollback()
    async with connection.transaction():
        await connection.execute("SELECT api.enter($1, 'somebody', 'admin')", tenant)
        assert await connection.execute(insert, tenant, "mine") == "INSERT 0 1"
    await connection.close()


async def test_another_tenant_neither_sees_nor_changes_nor_asks_an_agent(
    admin: User, user: User, someone: Someone
) -> None:
    await made(admin)
    stranger = await someone("admin", word("elsewhere"), role="admin")
    assert await listed(stranger) == [DEFAULT]
    refused(await stranger.http.get("/api/agents/analyst"), 404, "AGENT_NOT_FOUND")
    refused(await stranger.http.patch("/api/agents/analyst", json={"prompt": "x"}), 404, "AGENT_NOT_FOUND")
    refused(await stranger.http.delete("/api/agents/analyst"), 404, "AGENT_NOT_FOUND")
    asking = await stranger.http.post("/api/messages", json={"content": "Hi", "agent_id": "analyst"})
    refused(asking, 404, "AGENT_NOT_FOUND")
    assert await made(stranger, display_name="Another") == ANALYST | {"display_name": "Another"}
    assert await listed(user) == [ANALYST, DEFAULT]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"colour": "red"}, "`colour`"),
        ({"id": "123e4567-e89b-12d3-a456-426614174000"}, "id: "),
        ({"id": ""}, "id: "),
        ({"id": "x" * 65}, "id: "),
        ({"id": "a\x00"}, "id: "),
        ({"id": 7}, "$.id"),
        ({"display_name": "x" * 101}, "display_name: "),
        ({"display_name": " "}, "display_name: "),
        ({"display_name": "a\x00"}, "display_name"),
        ({"prompt": "\x00"}, "prompt"),
        ({"prompt": "x" * 20_001}, "prompt: "),
        ({"model": "gemini"}, "model: "),
        ({"window": 0}, "window: "),
        ({"window": 1.5}, "$.window"),
        ({"window": 2**70}, "window"),
        ({"context_tokens": 10_000_001}, "context_tokens: "),
        ({"kind": "king"}, "$.kind"),
        ({"strategy": "never"}, "$.strategy"),
    ],
)
async def test_what_an_agent_cannot_be_is_refused_by_the_name_of_the_field(
    admin: User, change: dict[str, Any], named: str
) -> None:
    added = await admin.http.post("/api/agents", json=ANALYST | change)
    assert named in refused(added, 400, "INVALID_REQUEST")["message"]
    changed = await admin.http.patch("/api/agents/assistant", json=change)
    assert ("id" if "id" in change else named) in refused(changed, 400, "INVALID_REQUEST")["message"]
    assert await listed(admin) == [DEFAULT]


async def test_an_id_is_given_once_and_a_repeated_request_makes_one_agent(admin: User) -> None:
    body, key = ANALYST | {"id": "once"}, {"Idempotency-Key": word("k")}
    answers = await asyncio.gather(
        *(admin.http.post("/api/agents", json=body, headers=key) for _ in range(4))
    )
    assert [(answer.status_code, answer.json()) for answer in answers] == [(201, body)] * 4
    error = refused(await admin.http.post("/api/agents", json=body), 409, "AGENT_EXISTS")
    assert (
        error["message"]
        == "There is an agent with this id already. Change it with PATCH, or choose another id."
    )
    other = await admin.http.post("/api/agents", json=body | {"window": 4}, headers=key)
    refused(other, 409, "IDEMPOTENCY_KEY_REUSED")
    assert await listed(admin) == [DEFAULT, body]


async def test_prompt_model_and_window_of_the_agent_reach_the_model(
    admin: User, user: User, gemini: ScriptedGemini
) -> None:
    await made(admin)
    session = word("s")
    for n in range(3):
        await ask(user, f'q{n} [[text {{"said": "a{n}"}}]]', "analyst", session)
    state = await ask(user, last := f"{word()} And now?", "analyst", session)
    request = asked(gemini, last)
    assert request.model == "gemini-2.5-pro"
    assert request.system.startswith("Answer with numbers.\n")
    assert request.said == [("user", 'q2 [[text {"said": "a2"}]]'), ("model", "a2"), ("user", last)]
    page = await user.conversation(state["conversation_id"])
    assert page["messages"][-1]["agentId"] == "analyst"


async def test_a_budget_of_tokens_leaves_out_what_is_older(
    admin: User, user: User, gemini: ScriptedGemini
) -> None:
    await made(admin, window=20, context_tokens=150)
    session = word("s")
    for n in range(3):
        said = f"{n} " + "word " * 60
        await ask(user, f'[[text {{"said": "{said}"}}]]', "analyst", session)
    await ask(user, last := f"{word()} And now?", "analyst", session)
    assert [said[:1] for role, said in asked(gemini, last).said if role == "model"] == ["2"]


async def test_a_changed_agent_answers_the_next_message_in_the_new_way(
    admin: User, user: User, gemini: ScriptedGemini
) -> None:
    await made(admin)
    await ask(user, before := word("before"), "analyst", session := word("s"))
    change = {"prompt": "Answer in rhymes.", "model": "google_genai:gemini-2.5-flash"}
    await admin.http.patch("/api/agents/analyst", json=change)
    await ask(user, after := word("after"), "analyst", session)
    assert asked(gemini, before).system.startswith("Answer with numbers.\n")
    assert asked(gemini, after).system.startswith("Answer in rhymes.\n")
    assert (asked(gemini, before).model, asked(gemini, after).model) == ("gemini-2.5-pro", "gemini-2.5-flash")


async def test_what_was_asked_of_an_agent_that_is_removed_meanwhile_fails_for_all_to_see(
    admin: User, user: User
) -> None:
    await made(admin)
    session = word("s")
    first = await put(user, "[[hang]]", "analyst", session)
    second = await put(user, "Still there?", "analyst", session)
    await admin.http.delete("/api/agents/analyst")
    await user.http.post(f"/api/conversations/{first['conversation_id']}/abort")
    state = await user.answered(second)
    assert state["status"] == "failed"
    assert (state["turns"][0]["code"], state["turns"][0]["error"]) == (
        "AGENT_NOT_FOUND",
        "The agent that was asked is no longer there.",
    )
    page = await user.conversation(first["conversation_id"])
    assert [message["content"] for message in page["messages"]] == ["[[hang]]", "Still there?"]


async def test_an_agent_with_a_model_that_nobody_provides_fails_for_all_to_see(
    admin: User, user: User
) -> None:
    await made(admin, model="nonsense:model")
    state = await ask(user, "Hello", "analyst")
    assert (state["status"], state["turns"][0]["code"]) == ("failed", "MODEL_REFUSED")


@pytest.mark.parametrize("agent", ["nobody", "x" * 300, "123e4567-e89b-12d3-a456-426614174000", "a/b", "é"])
async def test_a_message_to_an_unknown_agent_is_refused(user: User, agent: str) -> None:
    response = await user.http.post("/api/messages", json={"content": "Hi", "agent_id": agent})
    refused(response, 404, "AGENT_NOT_FOUND")
    assert (await user.http.get("/api/conversations")).json()["conversations"] == []


async def test_the_default_agent_is_another_in_one_tenant_only(
    admin: User, user: User, someone: Someone, gemini: ScriptedGemini
) -> None:
    stranger = await someone("user", word("elsewhere"))
    changed = await admin.http.patch(
        "/api/agents/assistant", json={"prompt": "Whisper.", "display_name": "Owl"}
    )
    assert changed.json() == DEFAULT | {"prompt": "Whisper.", "display_name": "Owl"}
    assert (await names(user), await names(stranger)) == (["Owl"], ["Assistant"])
    await ask(user, ours := word("ours"))
    await ask(stranger, theirs := word("theirs"))
    assert asked(gemini, ours).system.startswith("Whisper.\n")
    assert asked(gemini, theirs).system.startswith("You are a helpful assistant.")
    await admin.http.delete("/api/agents/assistant")
    await ask(user, again := word("again"))
    assert asked(gemini, again).system.startswith("You are a helpful assistant.")
    assert await listed(user) == [DEFAULT]
