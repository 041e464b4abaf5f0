"""The roles of the database: what the server's own may do, and which the server refuses to serve as."""

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tertulia.embedded import Services
from tertulia.store.database import Database
from tertulia.store.guard import UnsafeRole
from tests.store.conftest import address

Connection = asyncpg.Connection

DEFINERS = """
    SELECT p.oid::regprocedure::text AS name, p.proowner::regrole::text AS owner, p.proconfig AS config,
           has_function_privilege('public', p.oid, 'EXECUTE') AS public,
           has_function_privilege('tertulia', p.oid, 'EXECUTE') AS server
      FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
     WHERE p.prosecdef AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""


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
