"""What the tables themselves hold to: one conversation for a pair, cards that outlive briefings, a fast way in."""

import json
import re
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tertulia.embedded import Services
from tests.store.conftest import address

Connection = asyncpg.Connection

CONVERSATION = (
    "INSERT INTO conversations (tenant, id, user_id, agent_id, session_id) VALUES ($1, $2, $3, $4, $5)"
)
CARD = """
    INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role, content_type,
                          content, briefing_id)
    VALUES ('acme', $1, $2, $3, $3, 'ann', 'h', 'system', 'briefing_card', '{"title": "返工率50%"}', $4)
"""
MANY = """
    WITH made AS (
        INSERT INTO conversations (tenant, id, user_id, session_id)
        SELECT 'acme', gen_random_uuid(), 'ann', 's' || n FROM generate_series(1, 200) n RETURNING id
    )
    INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role, content_type,
                          content)
    SELECT 'acme', gen_random_uuid(), id, n, n, 'ann', 'h', 'user', 'text', to_jsonb('message ' || n)
      FROM made, generate_series(1, 60) n ORDER BY n, id
"""


async def entered(connection: "Connection[Any]", user: str = "ann") -> None:
    await connection.execute(
        "SELECT set_config('tertulia.tenant', 'acme', true), set_config('tertulia.user', $1, true)", user
    )


@pytest.fixture
async def owner(migrated: str, backends: Services) -> Any:
    """The superuser in a new database in which Ann and Bob are known."""
    connection = await asyncpg.connect(address(backends, "postgres", migrated))
    await connection.execute("INSERT INTO users (tenant, id) VALUES ('acme', 'ann'), ('acme', 'bob')")
    yield connection
    await connection.close()


@pytest.fixture
async def server(owner: "Connection[Any]", migrated: str, backends: Services) -> Any:
    """The server's role there."""
    connection = await asyncpg.connect(address(backends, "tertulia", migrated))
    yield connection
    await connection.close()


async def insert(connection: "Connection[Any]", user: str, agent: str | None) -> UUID:
    """A conversation inserted as the server would do it for this user."""
    name = uuid4()
    async with connection.transaction():
        await entered(connection, user)
        await connection.execute(CONVERSATION, "acme", name, user, agent, uuid4().hex)
    return name


@pytest.mark.scenario("001", "Unique constraint prevents duplicate conversations")
async def test_a_second_conversation_of_a_user_with_an_agent_is_rejected(
    server: "Connection[Any]", owner: "Connection[Any]"
) -> None:
    first = await insert(server, "ann", "analyst")
    with pytest.raises(asyncpg.UniqueViolationError) as rejected:
        await insert(server, "ann", "analyst")
    assert rejected.value.constraint_name == "conversations_standing"
    with pytest.raises(asyncpg.UniqueViolationError):
        await owner.execute(CONVERSATION, "acme", uuid4(), "ann", "analyst", "s")
    await insert(server, "bob", "analyst")
    await insert(server, "ann", "writer")
    await insert(server, "ann", None)
    await insert(server, "ann", None)
    await owner.execute("UPDATE conversations SET deleted_at = now() WHERE id = $1", first)
    await insert(server, "ann", "analyst")
    with pytest.raises(asyncpg.UniqueViolationError):
        await owner.execute("UPDATE conversations SET deleted_at = NULL WHERE id = $1", first)


@pytest.mark.scenario("001", "Briefing reference in message")
async def test_a_card_whose_briefing_is_deleted_keeps_its_content_and_refers_to_nothing(
    server: "Connection[Any]", owner: "Connection[Any]"
) -> None:
    conversation = await insert(server, "ann", "analyst")
    briefing, other, card, beside = uuid4(), uuid4(), uuid4(), uuid4()
    for name in (briefing, other):
        await owner.execute(
            "INSERT INTO briefings (tenant, id, user_id, agent_id, posted_by, title, summary, priority,"
            " briefing_type) VALUES ('acme', $1, 'ann', 'analyst', 'boss', '返工率50%', 's', 'P1', 'alert')",
            name,
        )
    async with server.transaction():
        await entered(server)
        await server.execute(CARD, card, conversation, 1, briefing)
        await server.execute(CARD, beside, conversation, 2, other)
    before = await owner.fetchrow("SELECT * FROM messages WHERE id = $1", card)
    untouched = await owner.fetchrow("SELECT * FROM messages WHERE id = $1", beside)
    async with server.transaction():
        await entered(server)
        assert await server.execute("DELETE FROM briefings WHERE id = $1", briefing) == "DELETE 1"
    after = await owner.fetchrow("SELECT * FROM messages WHERE id = $1", card)
    assert before is not None
    assert after is not None
    assert (before["briefing_id"], before["content"]) == (briefing, '{"title": "返工率50%"}')
    assert dict(after) == dict(before) | {"briefing_id": None}
    assert await owner.fetchrow("SELECT * FROM messages WHERE id = $1", beside) == untouched


async def test_a_card_cannot_refer_to_a_briefing_that_is_not_there_nor_be_twice_in_a_conversation(
    server: "Connection[Any]", owner: "Connection[Any]"
) -> None:
    conversation, briefing = await insert(server, "ann", "analyst"), uuid4()
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await owner.execute(CARD, uuid4(), conversation, 1, briefing)
    await owner.execute(
        "INSERT INTO briefings (tenant, id, user_id, agent_id, posted_by, title, summary, priority, briefing_type)"
        " VALUES ('acme', $1, 'ann', 'analyst', 'boss', 't', 's', 'P1', 'alert')",
        briefing,
    )
    await owner.execute(CARD, uuid4(), conversation, 1, briefing)
    with pytest.raises(asyncpg.UniqueViolationError):
        await owner.execute(CARD, uuid4(), conversation, 2, briefing)


PARAMETERS = {
    "p_tenant": "text",
    "p_conversation": "uuid",
    "p_before": "bigint",
    "p_after": "bigint",
    "p_limit": "integer",
    "p_kinds": "text[]",
}


async def page_queries(owner: "Connection[Any]") -> list[tuple[str, list[str]]]:
    """The statements of `api.read_page`, with numbers for the names of their parameters, and these names."""
    body = await owner.fetchval("SELECT prosrc FROM pg_proc WHERE oid = 'api.read_page'::regproc")
    found: list[tuple[str, list[str]]] = []
    for statement in re.findall(r"RETURN QUERY (SELECT.*?);", body, re.DOTALL):
        query, names = statement, [name for name in PARAMETERS if name in statement]
        for number, name in enumerate(names, 1):
            query = re.sub(rf"\b{name}\b", f"${number}::{PARAMETERS[name]}", query)
        found.append((query, names))
    return found


def scans(plan: dict[str, Any]) -> list[tuple[str, str | None]]:
    """How a plan reads tables: the kind of each scan, and its index."""
    below = [found for child in plan.get("Plans", []) for found in scans(child)]
    mine = (plan["Node Type"], plan.get("Index Name"))
    return [mine, *below] if "Scan" in mine[0] else below


@pytest.mark.scenario("001", "Message indexing for fast retrieval")
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed"])
async def test_the_messages_of_a_conversation_are_found_by_their_index_among_twelve_thousand(
    analyzed: bool, mode: str, server: "Connection[Any]", owner: "Connection[Any]"
) -> None:
    await owner.execute(MANY)
    await owner.execute("ANALYZE" if analyzed else "SELECT 1")
    assert await owner.fetchval("SELECT count(*) FROM messages") == 12_000
    name = await owner.fetchval("SELECT id FROM conversations ORDER BY id OFFSET 100 LIMIT 1")
    queries = await page_queries(owner)
    assert [names[2] for _, names in queries] == ["p_before", "p_after"]
    for number, (query, names) in enumerate(queries):
        types = ", ".join(PARAMETERS[each] for each in names)
        await server.execute(f"PREPARE page_{number} ({types}) AS {query}")
        async with server.transaction():
            await entered(server)
            await server.execute(f"SET LOCAL plan_cache_mode = {mode}")
            explained = await server.fetchval(
                f"EXPLAIN (FORMAT JSON) EXECUTE page_{number}('acme', '{name}', 30, 20, '{{text,briefing_card}}')"
            )
        plan = json.loads(explained)[0]["Plan"]
        assert scans(plan) == [("Index Scan", "idx_messages_conversation")], plan


async def test_reading_a_page_touches_no_more_than_the_index_and_the_rows_of_the_page(
    server: "Connection[Any]", owner: "Connection[Any]"
) -> None:
    await owner.execute(MANY)
    name = await owner.fetchval("SELECT id FROM conversations ORDER BY id OFFSET 100 LIMIT 1")
    async with server.transaction():
        rows = await server.fetch(
            "SELECT seq FROM api.read_page('acme', 'ann', $1, 50, NULL, 20, '{text,briefing_card}')", name
        )
        (whole, index, read) = await server.fetchrow(
            "SELECT pg_stat_get_xact_numscans('messages'::regclass),"
            " pg_stat_get_xact_numscans('idx_messages_conversation'::regclass),"
            " pg_stat_get_xact_tuples_fetched('idx_messages_conversation'::regclass)"
        )
    assert [row["seq"] for row in rows] == list(range(49, 29, -1))
    assert (whole, index, read) == (0, 1, 20)
