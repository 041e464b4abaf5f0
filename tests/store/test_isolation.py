"""Row level security on every table with a tenant, found in the catalogue, so that none can be forgotten."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tertulia.embedded import Services
from tests.store.conftest import ANN, BOB, EVE, TENANT_TABLES, address, tables

Connection = asyncpg.Connection

STRANGERS = {"another user": BOB, "another tenant": EVE, "nobody": None, "empty names": ("", "")}


async def unprotected(connection: "Connection[Any]") -> list[str]:
    """The tables with a tenant that somebody else's request could read."""
    tables = await connection.fetch(TENANT_TABLES)
    return [row["name"] for row in tables if not (row["enabled"] and row["forced"] and row["policed"])]


async def enter(connection: "Connection[Any]", owner: tuple[str, str] | None, role: str = "user") -> None:
    if owner is not None:
        await connection.execute(
            "SELECT set_config('tertulia.tenant', $1, true), set_config('tertulia.user', $2, true),"
            " set_config('tertulia.role', $3, true)",
            *owner,
            role,
        )


@asynccontextmanager
async def undone(connection: "Connection[Any]") -> AsyncIterator[None]:
    """What happens inside has not happened."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


async def do(
    connection: "Connection[Any]",
    owner: tuple[str, str] | None,
    statement: str,
    *given: object,
    role: str = "user",
) -> str:
    """Run a statement as the server would run it for this owner, and undo it."""
    async with undone(connection):
        await enter(connection, owner, role)
        return await connection.execute(statement, *given)


async def leaks(connection: "Connection[Any]", stranger: tuple[str, str] | None) -> list[str]:
    """What a stranger may do with rows of Ann's tenant, in any table there is."""
    found: list[str] = []
    for table in await tables(connection):
        theirs = "tenant = 'acme'" + (" AND id = 'ann'" if table == "users" else "")
        for what, statement in {
            "read": f"SELECT FROM {table} WHERE {theirs}",
            "changed": f"UPDATE {table} SET tenant = tenant WHERE {theirs}",
            "deleted": f"DELETE FROM {table} WHERE {theirs}",
        }.items():
            try:
                done = await do(connection, stranger, statement)
            except asyncpg.IntegrityConstraintViolationError:
                done = f"{what}, but for what hangs on it"
            if not done.endswith(" 0"):
                found.append(f"{table} is {what}")
    return found


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


KNOWN = frozenset({"agents"})  # to their whole tenant, on purpose: see below


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
async def test_a_stranger_reads_changes_and_deletes_nothing(
    stranger: tuple[str, str] | None, server: "Connection[Any]"
) -> None:
    found = await leaks(server, stranger)
    assert found == (["agents is read"] if stranger == BOB else [])


async def test_one_policy_that_is_spoilt_or_gone_is_noticed_in_every_table(
    filled: str, backends: Services
) -> None:
    superuser = await asyncpg.connect(address(backends, "postgres", filled))
    for table in await tables(superuser):
        own = await superuser.fetch(
            "SELECT polname FROM pg_policy WHERE polrelid = $1::regclass"
            " AND 'tertulia_server'::regrole = ANY (polroles)",
            table,
        )
        gone = "; ".join(f"DROP POLICY {row['polname']} ON {table}" for row in own)
        for spoil in (gone, f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY"):
            async with undone(superuser):
                await superuser.execute(spoil)
                assert await unprotected(superuser) == [table]
        async with undone(superuser):
            await superuser.execute(f"CREATE POLICY hole ON {table} TO tertulia_server USING (true)")
            await superuser.execute("SET LOCAL ROLE tertulia")
            found = await leaks(superuser, EVE)
            assert found == [f"{table} is {what}" for what in ("read", "changed", "deleted")]
    await superuser.close()


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
            both = 2 if table == "agents" else 1
            assert await server.fetchval(f"SELECT count(*) FROM {table}") == both, table


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
    for table in set(await tables(server)) - KNOWN:
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


async def test_agents_are_known_to_their_tenant_and_those_of_every_tenant_to_all(
    server: "Connection[Any]",
) -> None:
    known = {ANN: ["own", "shared"], BOB: ["own", "shared"], EVE: ["shared"], ("", ""): [], ("", "ann"): []}
    for who, agents in known.items():
        async with server.transaction():
            await enter(server, who, "admin")
            assert [row["id"] for row in await server.fetch("SELECT id FROM agents ORDER BY id")] == agents, (
                who
            )


AN_AGENT = (
    "INSERT INTO agents (tenant, id, display_name, kind, prompt, strategy)"
    " VALUES ($1, 'new', 'New', 'hub', '', 'always')"
)


async def test_agents_are_written_by_the_admins_of_their_tenant_only(server: "Connection[Any]") -> None:
    rename, remove = (
        f"{verb} WHERE tenant = 'acme'" for verb in ("UPDATE agents SET prompt = 'x'", "DELETE FROM agents")
    )
    assert await do(server, BOB, rename, role="admin") == "UPDATE 1"
    assert await do(server, BOB, remove, role="admin") == "DELETE 1"
    assert await do(server, BOB, AN_AGENT, "acme", role="admin") == "INSERT 0 1"
    nobody = ("acme", "")
    others = [(ANN, "user"), (ANN, "agent"), (ANN, ""), (ANN, "ADMIN"), (EVE, "admin"), (nobody, "admin")]
    for who, role in others:
        assert await do(server, who, rename, role=role) == "UPDATE 0", (who, role)
        assert await do(server, who, remove, role=role) == "DELETE 0", (who, role)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await do(server, who, AN_AGENT, "acme", role=role)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await do(server, ANN, "UPDATE agents SET tenant = 'other' WHERE id = 'own'", role="admin")


async def test_agents_of_every_tenant_are_written_by_nobody_of_a_tenant(server: "Connection[Any]") -> None:
    for who in (ANN, EVE, ("", "ann"), ("", "")):
        for statement in ("UPDATE agents SET prompt = 'x'", "DELETE FROM agents"):
            done = await do(server, who, f"{statement} WHERE tenant = ''", role="admin")
            assert done.endswith(" 0"), (who, statement)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await do(server, who, AN_AGENT, "", role="admin")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await do(server, ANN, "UPDATE agents SET tenant = '' WHERE id = 'own'", role="admin")


async def test_foreign_keys_carry_the_tenant(superuser: "Connection[Any]") -> None:
    rows = await superuser.fetch(
        "SELECT conrelid::regclass::text AS on, (SELECT attname FROM pg_attribute WHERE attrelid = conrelid"
        " AND attnum = conkey[1]) AS first FROM pg_constraint"
        " WHERE contype = 'f' AND connamespace = 'public'::regnamespace"
    )
    assert rows
    assert [row["on"] for row in rows if row["first"] != "tenant"] == []


async def test_row_security_cannot_be_switched_off_in_a_session(server: "Connection[Any]") -> None:
    await server.execute("SET row_security = off")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await server.fetchval("SELECT count(*) FROM messages")
