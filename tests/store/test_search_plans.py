"""How a search finds its rows, by the index on terms and no others than its owner's; how messages get there."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NamedTuple, cast
from uuid import UUID

import asyncpg
import pytest

from tertulia.core.errors import Unavailable
from tertulia.embedded import Services
from tertulia.queue.sweeper import Sweeper
from tertulia.store.database import Database
from tertulia.store.migrate import migrate
from tests.store.conftest import address

USERS, EACH = 500, 100
TABLES = ("search", "messages", "conversations")

# Everybody says "report" and 返工率; each tenth of their messages says "budget".
_TEXTS = """
    SELECT n, format('Weekly report %s 代码返工率偏高%s', n, CASE WHEN n % 10 = 0 THEN ' budget' ELSE '' END) AS said
      FROM generate_series(1, {each}) AS n
"""
_USERS = """
    SELECT 'acme' AS tenant, 'user-' || u AS name, md5('c' || u)::uuid AS conversation
      FROM generate_series(1, {users}) AS u
"""
_FILL = """
INSERT INTO conversations (tenant, id, user_id, session_id) SELECT tenant, conversation, name, name FROM ({users}) AS u;
INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role, content_type, content)
SELECT u.tenant, md5(u.name || '/' || t.n)::uuid, u.conversation, t.n, t.n, u.name, 'h', 'user', 'text',
       to_jsonb(t.said)
  FROM ({users}) AS u, ({texts}) AS t;
WITH texts AS MATERIALIZED (SELECT n, api.terms(said) AS terms FROM ({texts}) AS t),
     users AS MATERIALIZED (SELECT u.*, array_to_tsvector(ARRAY[api.owner_term(tenant, name)]) AS owned
                              FROM ({users}) AS u)
INSERT INTO search (tenant, user_id, message_id, conversation_id, terms)
SELECT u.tenant, u.name, md5(u.name || '/' || t.n)::uuid, u.conversation, t.terms || u.owned FROM users u, texts t;
"""
_QUIET = "".join(f"ALTER TABLE {table} SET (autovacuum_enabled = off);" for table in TABLES)


class Touched(NamedTuple):
    """What a search read: rows of `search` by its indexes and in turn, and how often it asked the index on terms."""

    by_index: int
    in_turn: int
    asked: int
    others: int


_TOUCHED = """
    SELECT pg_stat_get_xact_tuples_fetched('search'::regclass) AS by_index,
           (SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(oid)), 0)::bigint FROM pg_class
             WHERE relname = ANY('{search, messages, conversations}')) AS in_turn,
           pg_stat_get_xact_numscans(to_regclass('search_terms')) AS asked,
           pg_stat_get_xact_tuples_fetched('messages'::regclass)
             + pg_stat_get_xact_tuples_fetched('conversations'::regclass) AS others
"""


async def searched(
    connection: "asyncpg.Connection[Any]", text: str, *, limit: int = 20, function: str = "search_messages"
) -> tuple[list[UUID], Touched]:
    """What user-7 finds, as the server's role with the server's settings, and what was read for it."""
    await connection.execute("SET LOCAL ROLE tertulia")
    await connection.execute("SELECT api.enter('acme', 'user-7', 'user')")
    before = await connection.fetchrow(_TOUCHED)
    rows = await connection.fetch(f"SELECT message_id FROM api.{function}($1, $2, 0)", text, limit)
    after = await connection.fetchrow(_TOUCHED)
    assert before
    assert after
    read = {name: (after[name] or 0) - (before[name] or 0) for name in Touched._fields}
    return [row["message_id"] for row in rows], Touched(**read)


@pytest.fixture(scope="module")
async def many(backends: Services) -> AsyncGenerator["asyncpg.Connection[Any]"]:
    """50,000 findable messages of 500 users, never analyzed; a superuser, planning as the server's connections do."""
    outside = await asyncpg.connect(address(backends, "postgres"))
    await outside.execute("CREATE DATABASE searched OWNER tertulia_owner TEMPLATE template0")
    inside = await asyncpg.connect(
        address(backends, "postgres", "searched"), server_settings={"jit": "off", "enable_seqscan": "off"}
    )
    await inside.execute("CREATE EXTENSION vector")
    await migrate(address(backends, "tertulia_owner", "searched"), "tertulia")
    await inside.execute(_QUIET)
    given = {"users": _USERS.format(users=USERS), "texts": _TEXTS.format(each=EACH)}
    await inside.execute("SET session_replication_role = replica;" + _FILL.format(**given))
    await inside.execute("RESET session_replication_role")
    yield inside
    await inside.close()
    await outside.execute("DROP DATABASE searched WITH (FORCE)")
    await outside.close()


@pytest.fixture(params=["never analyzed", "analyzed"])
async def planned(
    request: pytest.FixtureRequest, many: "asyncpg.Connection[Any]"
) -> AsyncGenerator["asyncpg.Connection[Any]"]:
    """The same, in a transaction that leaves nothing behind."""
    transaction = many.transaction()
    await transaction.start()
    if request.param == "analyzed":
        await many.execute("ANALYZE search, messages, conversations")
    yield many
    await transaction.rollback()


@pytest.mark.parametrize(("text", "found"), [("reports", 100), ("budget", 10), ("返工率", 100), ("返", 100)])
async def test_a_search_reads_the_rows_of_one_user_that_say_it_and_no_others(
    planned: "asyncpg.Connection[Any]", text: str, found: int
) -> None:
    for _ in range(8):  # plans made for any parameters come after five calls
        rows, touched = await searched(planned, text)
        assert len(rows) == min(found, 20)
        assert touched.asked == 1
        assert found <= touched.by_index <= found + 2
        assert touched.in_turn <= found + 2
        assert touched.others <= 2 * found


async def test_without_the_owners_term_the_rows_of_everybody_who_says_it_are_read(
    planned: "asyncpg.Connection[Any]",
) -> None:
    source = str(await planned.fetchval("SELECT pg_get_functiondef('api.search_messages'::regproc)"))
    assert source.count("(owned && wanted)") == 1
    careless = source.replace("(owned && wanted)", "wanted").replace("search_messages", "careless_search")
    await planned.execute(careless)
    await planned.execute(
        "ALTER FUNCTION api.careless_search OWNER TO tertulia_system;"
        "GRANT EXECUTE ON FUNCTION api.careless_search TO tertulia_server"
    )
    right, few = await searched(planned, "reports")
    same, all_of_them = await searched(planned, "reports", function="careless_search")
    assert same == right
    assert (few.by_index, all_of_them.by_index) == (100, 50_000)


async def test_without_the_index_on_terms_every_row_is_read(planned: "asyncpg.Connection[Any]") -> None:
    await planned.execute("DROP INDEX search_terms")
    rows, touched = await searched(planned, "budget")
    assert len(rows) == 10
    assert touched.by_index + touched.in_turn >= 50_000


@pytest.fixture
async def waiting(migrated: str, backends: Services) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A database in which five messages of Ann's wait to be made findable, as the superuser sees it."""
    connection = await asyncpg.connect(address(backends, "postgres", migrated))
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(
        "INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role,"
        " content_type, content) SELECT 'acme', md5('m' || n)::uuid, md5('c')::uuid, n, n, 'ann', 'h', 'user', 'text',"
        " '\"Hello\"' FROM generate_series(1, 5) AS n"
    )
    await connection.execute("RESET session_replication_role")
    await connection.execute("INSERT INTO unindexed SELECT tenant, user_id, id FROM messages")
    yield connection
    await connection.close()


async def left(connection: "asyncpg.Connection[Any]") -> tuple[int, int]:
    """How many messages wait, and how many are findable."""
    row = await connection.fetchrow(
        "SELECT (SELECT count(*) FROM unindexed) AS waiting, (SELECT count(*) FROM search) AS findable"
    )
    assert row
    return row["waiting"], row["findable"]


async def test_when_many_messages_at_once_are_too_much_they_are_made_findable_one_by_one(
    waiting: "asyncpg.Connection[Any]", migrated: str, backends: Services
) -> None:
    await waiting.execute("ALTER FUNCTION api.index_messages RENAME TO index_some")
    await waiting.execute(
        "CREATE FUNCTION api.index_messages(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN"
        " IF p_limit > 1 THEN RAISE EXCEPTION USING ERRCODE = 'query_canceled'; END IF;"
        " RETURN api.index_some(p_limit); END $$"
    )
    database = await Database.open(address(backends, "tertulia", migrated), 2)
    absent = cast(Any, None)
    sweeper = Sweeper(database, absent, absent, absent, absent, quiet=1, erase_after=1)
    with pytest.raises(Unavailable):
        await sweeper.index()
    assert await left(waiting) == (5, 0)
    await sweeper.index()
    assert await left(waiting) == (0, 5)
    await database.close()


async def test_a_message_that_is_just_being_erased_is_passed_over(
    waiting: "asyncpg.Connection[Any]", server_role_there: "asyncpg.Connection[Any]"
) -> None:
    async with waiting.transaction():
        await waiting.execute("SELECT FROM messages WHERE seq = 3 FOR UPDATE")  # as the first step of erasing
        assert await server_role_there.fetchval("SELECT api.index_messages(20)") == 4
        await waiting.execute("DELETE FROM messages WHERE seq = 3")
    assert await server_role_there.fetchval("SELECT api.index_messages(20)") == 0
    assert await left(waiting) == (0, 4)


@pytest.fixture
async def server_role_there(migrated: str, backends: Services) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """The server's role in that database; it does not wait long."""
    connection = await asyncpg.connect(
        address(backends, "tertulia", migrated), server_settings={"lock_timeout": "2s"}
    )
    yield connection
    await connection.close()
