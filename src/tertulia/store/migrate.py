"""Bring a database to the present schema: numbered migrations once, functions whenever they changed."""

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

from tertulia.store.wire import Connection, connect

_LOCK = 0x7E57011A  # two processes that migrate at once wait for each other


def _scripts(folder: str) -> list[Traversable]:
    found = files("tertulia.store").joinpath(folder).iterdir()
    return sorted((file for file in found if file.name.endswith(".sql")), key=lambda file: file.name)


def expected() -> list[str]:
    """The names that a database of this version has recorded."""
    return [script.name for script in _scripts("migrations")] + [_functions_name()]


def _functions_name() -> str:
    text = "".join(script.read_text("utf-8") for script in _scripts("functions"))
    return "functions:" + hashlib.sha256(text.encode()).hexdigest()[:16]


async def migrate(migration_url: str, server_role: str) -> list[str]:
    """Apply what is missing, as the owner of the database; yields the names of what was applied.

    `server_role` is the role that servers log in as: it is made a member of `tertulia_server`.
    """
    connection = await connect(migration_url, timeout=10)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        return await _apply_missing(connection, server_role)
    finally:
        await connection.close()


async def _apply_missing(connection: Connection, server_role: str) -> list[str]:
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations"
        " (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
    )
    done = {str(row["name"]) for row in await connection.fetch("SELECT name FROM migrations")}
    applied: list[str] = []
    for script in _scripts("migrations"):
        if script.name not in done:
            async with connection.transaction():
                await connection.execute(script.read_text("utf-8"))
                await connection.execute("INSERT INTO migrations (name) VALUES ($1)", script.name)
            applied.append(script.name)
    if _functions_name() not in done:
        async with connection.transaction():
            await _replace_functions(connection)
        applied.append(_functions_name())
    await _admit(connection, server_role)
    return applied


async def _replace_functions(connection: Connection) -> None:
    """Functions are code, not data: all of them are made anew, in one transaction."""
    await connection.execute("DROP SCHEMA IF EXISTS api CASCADE")
    await connection.execute("CREATE SCHEMA api")
    for script in _scripts("functions"):
        await connection.execute(script.read_text("utf-8"))
    await connection.execute(_HAND_OVER)
    await connection.execute("DELETE FROM migrations WHERE name LIKE 'functions:%'")
    await connection.execute("INSERT INTO migrations (name) VALUES ($1)", _functions_name())


_HAND_OVER = """
GRANT tertulia_system TO CURRENT_USER;
GRANT USAGE, CREATE ON SCHEMA api TO tertulia_system;
DO $$
DECLARE
    routine regprocedure;
BEGIN
    FOR routine IN SELECT oid FROM pg_proc WHERE pronamespace = 'api'::regnamespace AND prosecdef LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO tertulia_system', routine);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', routine);
    END LOOP;
    EXECUTE 'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA api TO tertulia_server';
END
$$;
REVOKE CREATE ON SCHEMA api FROM tertulia_system;
REVOKE tertulia_system FROM CURRENT_USER;
GRANT USAGE ON SCHEMA api TO tertulia_server;
GRANT SELECT ON migrations TO tertulia_server;
"""


async def _admit(connection: Connection, server_role: str) -> None:
    quoted = await connection.fetchval("SELECT quote_ident($1)", server_role)
    member = await connection.fetchval(
        "SELECT pg_has_role($1::name, 'tertulia_server', 'MEMBER')", server_role
    )
    if not member:
        await connection.execute(f"GRANT tertulia_server TO {quoted}")
