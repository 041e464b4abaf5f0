"""Row level security on every table with a tenant, found in the catalogue, so that none can be forgotten."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tertulia.embedded import Services
from tertulia.store.database import Database
from tertulia.store.guard import UnsafeRole
from tests.store.conftest import address

Connection = asyncpg.Connection

TENANT_TABLES = """
    SELECT c.relname AS name, c.relrowsecurity AS enabled, c.relforcerowsecurity AS forced,
           EXISTS (SELECT FROM pg_policy p
                    WHERE p.polrelid = c.oid AND 'tertulia_server'::regrole = ANY (p.polroles)) AS policed
      FROM pg_class c
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname IN ('tenant', 'tenant_id')
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1
"""

DEFINERS = """
    SELECT p.oid::regprocedure::text AS name, p.proowner::regrole::text AS owner, p.proconfig AS config,
           has_function_privilege('public', p.oid, 'EXECUTE') AS public,
           has_function_privilege('tertulia', p.oid, 'EXECUTE') AS server
      FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE p.prosecdef AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""

ANN, BOB, EVE = ("acme", "ann"), ("acme", "bob"), ("other", "ann")
STRANGERS = {"another user": BOB, "another tenant": EVE, "nobody": None, "empty names": ("", "")}


async def unprotected(connection: "Connection[Any]") -> list[str]:
    """The tables with a tenant that somebody else's request could read."""
    tables = await connection.fetch(TENANT_TABLES)
    return [row["name"] for row in tables if not (row["enabled"] and row["forced"] and row["policed"])]


async def enter(connection: "Connection[Any]", owner: tuple[str, str] | None) -> None:
    if owner is not None:
        await connection.execute(
            "SELECT set_config('tertulia.tenant', $1, true), set_config('tertulia.user', $2, true)", *owner
        )


async def do(
    connection: "Connection[Any]", owner: tuple[str, str] | None, statement: str, *given: object
) -> None:
    """Run a statement as the server would run it for this owner."""
    async with connection.transaction():
        await enter(connection, owner)
        await connection.execute(statement, *given)


@pytest.fixture
async def filled(migrated: str, backends: Services) -> AsyncIterator[str]:
    """A database in which every tenant table has a row of Ann's."""
    connection = await asyncpg.connect(address(backends, "postgres", migrated))
    for owner in (ANN, BOB, EVE):
        await connection.execute("INSERT INTO users (tenant, id) VALUES ($1, $2)", *owner)
    names = {name: uuid4() for name in ("conversation", "message", "turn")}
    await connection.execute(
        "INSERT INTO conversations (tenant, id, user_id, session_id) VALUES ('acme', $1, 'ann', 'secret')",
        names["conversation"],
    )
    await connection.execute(
        "INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role,"
        " content_type, content) VALUES ('acme', $1, $2, 1, 1, 'ann', 'h', 'user', 'text', '\"Hi\"')",
        names["message"],
        names["conversation"],
    )
    await connection.execute(
        "INSERT INTO turns (tenant, id, conversation_id, message_id, trigger_seq, user_id, agent_id)"
        " VALUES ('acme', $1, $2, $3, 1, 'ann', 'assistant')",
        names["turn"],
        names["conversation"],
        names["message"],
    )
    await connection.execute(
        "INSERT INTO notifications (tenant, id, from_user_id, to_user_id, message)"
        " VALUES ('acme', gen_random_uuid(), 'ann', 'ann', 'Hi')"
    )
    await connection.execute(
        "INSERT INTO idempotency (tenant, user_id, route, key, body_hash, answer)"
        " VALUES ('acme', 'ann', 'r', 'k', 'h', '{}')"
    )
    await connection.execute(
        "INSERT INTO audit (tenant, user_id, action, subject) VALUES ('acme', 'ann', 'x', gen_random_uuid())"
    )
    for row in await connection.fetch(TENANT_TABLES):
        count = await connection.fetchval(f"SELECT count(*) FROM {row['name']} WHERE tenant = 'acme'")
        assert count, f"{row['name']} is new: give it a row here"
    yield migrated
    await connection.close()


@pytest.fixture
async def server(filled: str, backends: Services) -> AsyncIterator["Connection[Any]"]:
    """The server's role in that database."""
    connection = await asyncpg.connect(address(backends, "tertulia", filled))
    yield connection
    await connection.close()


async def tables(connection: "Connection[Any]") -> list[str]:
    return [row["name"] for row in await connection.fetch(TENANT_TABLES)]


async def test_row_level_security_is_on_and_forced_with_a_policy_on_every_table_that_has_a_tenant(
    superuser: "Connection[Any]",
) -> None:
    assert await unprotected(superuser) == []
    assert {"users", "conversations", "messages", "turns", "notifications"} <= set(await tables(superuser))


async def test_every_table_has_a_tenant_but_the_list_of_migrations(superuser: "Connection[Any]") -> None:
    every = await superuser.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
        " AND relowner = 'tertulia_owner'::regrole"
    )
    assert {row["relname"] for row in every} - set(await tables(superuser)) == {"migrations"}


@pytest.mark.parametrize(
    "half",
    [
        "CREATE TABLE plans (tenant text)",
        "CREATE TABLE plans (tenant text); ALTER TABLE plans ENABLE ROW LEVEL SECURITY",
        "CREATE TABLE plans (tenant text); ALTER TABLE plans ENABLE ROW LEVEL SECURITY;"
        " ALTER TABLE plans FORCE ROW LEVEL SECURITY",
        "CREATE TABLE plans (tenant_id text)",
        "CREATE TABLE plans (tenant text) PARTITION BY LIST (tenant)",
    ],
)
async def test_the_check_notices_a_new_table_without_protection(
    half: str, migrated: str, backends: Services
) -> None:
    connection = await asyncpg.connect(address(backends, "tertulia_owner", migrated))
    assert await unprotected(connection) == []
    await connection.execute(half)
    assert await unprotected(connection) == ["plans"]
    await connection.close()


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
async def test_a_stranger_reads_changes_and_deletes_nothing(
    stranger: tuple[str, str] | None, server: "Connection[Any]"
) -> None:
    for table in await tables(server):
        async with server.transaction():
            await enter(server, stranger)
            theirs = "tenant = 'acme'" + (" AND id = 'ann'" if table == "users" else "")
            assert await server.fetchval(f"SELECT count(*) FROM {table} WHERE {theirs}") == 0, table
            assert await server.execute(f"UPDATE {table} SET tenant = tenant WHERE {theirs}") == "UPDATE 0", (
                table
            )
            assert await server.execute(f"DELETE FROM {table} WHERE {theirs}") == "DELETE 0", table


async def test_without_a_tenant_and_a_user_there_are_no_rows_at_all(server: "Connection[Any]") -> None:
    for table in await tables(server):
        assert await server.fetchval(f"SELECT count(*) FROM {table}") == 0, table
    for half in (("acme", ""), ("", "ann")):
        async with server.transaction():
            await enter(server, half)
            for table in await tables(server):
                assert await server.fetchval(f"SELECT count(*) FROM {table}") == 0, table


async def test_the_owner_of_rows_reads_them(server: "Connection[Any]") -> None:
    async with server.transaction():
        await enter(server, ANN)
        for table in await tables(server):
            assert await server.fetchval(f"SELECT count(*) FROM {table}") == 1, table


async def test_the_owner_of_the_tables_is_bound_too(filled: str, backends: Services) -> None:
    connection = await asyncpg.connect(address(backends, "tertulia_owner", filled))
    for table in await tables(connection):
        assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0, table
    await connection.close()


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
async def test_a_stranger_cannot_put_a_row_under_an_owners_name(
    stranger: tuple[str, str] | None, server: "Connection[Any]", filled: str, backends: Services
) -> None:
    superuser = await asyncpg.connect(address(backends, "postgres", filled))
    for table in await tables(superuser):
        copied = dict(await superuser.fetchrow(f"SELECT * FROM {table} WHERE tenant = 'acme'") or {})
        copied |= {
            name: uuid4() for name in ("id", "message_id") if isinstance(copied.get(name), type(uuid4()))
        }
        columns = ", ".join(copied)
        places = ", ".join(f"${n}" for n in range(1, len(copied) + 1))
        insert = f"INSERT INTO {table} ({columns}) VALUES ({places})"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await do(server, stranger, insert, *copied.values())
    await superuser.close()


async def test_rows_cannot_be_given_to_or_hung_under_another_tenant(
    server: "Connection[Any]", filled: str, backends: Services
) -> None:
    superuser = await asyncpg.connect(address(backends, "postgres", filled))
    conversation = await superuser.fetchval("SELECT id FROM conversations")
    await superuser.close()
    for table in await tables(server):
        owner = "to_user_id" if table == "notifications" else "id" if table == "users" else "user_id"
        for change in ("tenant = 'other'", f"{owner} = 'bob'"):
            with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.ForeignKeyViolationError)):
                await do(server, ANN, f"UPDATE {table} SET {change}")
    message = (
        "INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role,"
        " content_type, content)"
        " VALUES ('other', gen_random_uuid(), $1, 2, 2, 'ann', 'h', 'user', 'text', '{}')"
    )
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await do(server, EVE, message, conversation)
    notification = (
        "INSERT INTO notifications (tenant, id, from_user_id, to_user_id, message)"
        " VALUES ('other', gen_random_uuid(), 'ann', 'bob', 'Hi')"
    )
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await do(server, EVE, notification)


async def test_foreign_keys_carry_the_tenant(superuser: "Connection[Any]") -> None:
    rows = await superuser.fetch(
        "SELECT conrelid::regclass::text AS on, (SELECT attname FROM pg_attribute WHERE attrelid = conrelid"
        " AND attnum = conkey[1]) AS first FROM pg_constraint"
        " WHERE contype = 'f' AND connamespace = 'public'::regnamespace"
    )
    assert rows
    assert [row["on"] for row in rows if row["first"] != "tenant"] == []


async def test_functions_that_see_all_rows_belong_to_the_system_role_and_are_for_the_server_alone(
    superuser: "Connection[Any]",
) -> None:
    functions = await superuser.fetch(DEFINERS)
    assert functions
    for function in functions:
        assert function["owner"] == "tertulia_system", function["name"]
        assert "search_path=pg_catalog, public, pg_temp" in function["config"], function["name"]
        assert not function["public"], function["name"]
        assert function["server"], function["name"]


async def test_the_system_role_cannot_log_in_owns_no_tables_and_makes_nothing(
    superuser: "Connection[Any]", backends: Services
) -> None:
    row = await superuser.fetchrow(
        "SELECT rolcanlogin, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb,"
        " (SELECT count(*) FROM pg_class WHERE relowner = r.oid) AS owned,"
        " has_schema_privilege(r.oid, 'api', 'CREATE') AS makes"
        " FROM pg_roles r WHERE rolname = 'tertulia_system'"
    )
    assert row is not None
    assert tuple(row) == (False, False, False, False, False, 0, False)
    with pytest.raises(asyncpg.PostgresError):
        await asyncpg.connect(address(backends, "tertulia_system"))


@pytest.mark.parametrize(
    "statement",
    [
        "SET ROLE tertulia_system",
        "SET ROLE tertulia_owner",
        "SET ROLE postgres",
        "SET SESSION AUTHORIZATION postgres",
        "ALTER TABLE messages DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE messages NO FORCE ROW LEVEL SECURITY",
        "CREATE POLICY mine ON messages USING (true)",
        "DROP POLICY own ON messages",
        "TRUNCATE messages",
        "DROP TABLE messages",
        "CREATE TABLE mine (x int)",
        "CREATE FUNCTION api.mine() RETURNS int LANGUAGE sql AS $$SELECT 1$$",
        "CREATE OR REPLACE FUNCTION api.backlog(OUT queued bigint, OUT running bigint, OUT waiting bigint)"
        " LANGUAGE sql AS $$SELECT 1, 1, 1$$",
        "ALTER ROLE tertulia BYPASSRLS",
        "GRANT tertulia_system TO tertulia",
        "COPY messages TO '/tmp/x'",
        "COPY (SELECT 1) TO PROGRAM 'id'",
        "DELETE FROM migrations",
    ],
)
async def test_the_server_role_cannot_free_itself(statement: str, server_role: "Connection[Any]") -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await server_role.execute(statement)


async def test_row_security_cannot_be_switched_off_in_a_session(server: "Connection[Any]") -> None:
    await server.execute("SET row_security = off")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await server.fetchval("SELECT count(*) FROM messages")


@pytest.mark.parametrize(
    "might",
    [
        "ALTER ROLE {role} SUPERUSER",
        "ALTER ROLE {role} BYPASSRLS",
        "GRANT tertulia_owner TO {role}",
        "GRANT tertulia_system TO {role}",
        "GRANT postgres TO {role}",
        "ALTER TABLE notifications OWNER TO {role}",
        "GRANT tertulia_owner TO {role} WITH INHERIT FALSE",
    ],
)
async def test_a_role_that_could_see_past_row_level_security_is_refused(
    might: str, migrated: str, backends: Services, superuser: "Connection[Any]"
) -> None:
    role = f"mighty_{uuid4().hex[:8]}"
    inside = await asyncpg.connect(address(backends, "postgres", migrated))
    await inside.execute(f"CREATE ROLE {role} LOGIN; GRANT tertulia_server TO {role}")
    try:
        database = await Database.open(address(backends, role, migrated), 2)
        await database.close()
        await inside.execute(might.format(role=role))
        with pytest.raises(UnsafeRole) as refused:
            await Database.open(address(backends, role, migrated), 2)
        assert role in str(refused.value)
    finally:
        await inside.execute(
            f"REASSIGN OWNED BY {role} TO tertulia_owner; DROP OWNED BY {role}; DROP ROLE {role}"
        )
        await inside.close()
