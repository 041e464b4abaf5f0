"""Databases of their own inside the shared PostgreSQL, as superuser, owner and server see them."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tertulia.embedded import Services
from tertulia.store.migrate import migrate

Scratch = Callable[[], Awaitable[str]]
Connection = asyncpg.Connection

TENANT_TABLES = """
    SELECT c.relname AS name, c.relrowsecurity AS enabled, c.relforcerowsecurity AS forced,
           EXISTS (SELECT FROM pg_policy p
                    WHERE p.polrelid = c.oid AND 'tertulia_server'::regrole = ANY (p.polroles)) AS policed
      FROM pg_class c
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname IN ('tenant', 'tenant_id')
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1
"""

ANN, BOB, EVE = ("acme", "ann"), ("acme", "bob"), ("other", "ann")


def address(services: Services, role: str, database: str = "tertulia") -> str:
    """The URL of a database for a role."""
    there = services.migration_url.partition("@")[2].partition("?")[2]
    return f"postgresql://{role}@/{database}?{there}"


@pytest.fixture
async def superuser(backends: Services) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(address(backends, "postgres"))
    yield connection
    await connection.close()


@pytest.fixture
async def server_role(backends: Services) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection as the server makes them."""
    connection = await asyncpg.connect(backends.database_url)
    yield connection
    await connection.close()


@pytest.fixture
async def scratch(backends: Services, superuser: "asyncpg.Connection[Any]") -> AsyncGenerator[Scratch]:
    """Makes empty databases of the owner's, with pgvector, gone afterwards; yields their names."""
    made: list[str] = []

    async def make() -> str:
        name = f"scratch_{uuid4().hex[:8]}"
        await superuser.execute(f"CREATE DATABASE {name} OWNER tertulia_owner TEMPLATE template0")
        made.append(name)
        inside = await asyncpg.connect(address(backends, "postgres", name))
        await inside.execute("CREATE EXTENSION vector")
        await inside.close()
        return name

    yield make
    for name in made:
        await superuser.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def migrated(backends: Services, scratch: Scratch) -> str:
    """The name of a database that has just been migrated."""
    name = await scratch()
    await migrate(address(backends, "tertulia_owner", name), "tertulia")
    return name


async def tables(connection: "Connection[Any]") -> list[str]:
    return [row["name"] for row in await connection.fetch(TENANT_TABLES)]


@pytest.fixture
async def filled(migrated: str, backends: Services) -> AsyncIterator[str]:
    """A database in which every tenant table has a row of Ann's; an agent is her tenant's, one is everybody's."""
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
    await connection.execute(
        "INSERT INTO agents (tenant, id, display_name, kind, prompt, strategy) VALUES"
        " ('acme', 'own', 'Own', 'hub', 'secret', 'always'), ('', 'shared', 'Shared', 'hub', 'p', 'always')"
    )
    await connection.execute(
        "INSERT INTO briefings (tenant, id, user_id, agent_id, posted_by, title, summary, priority,"
        " briefing_type) VALUES ('acme', gen_random_uuid(), 'ann', 'own', 'ada', 't', 's', 'P0', 'alert')"
    )
    await connection.execute(
        "INSERT INTO unindexed (tenant, user_id, message_id) VALUES ('acme', 'ann', $1)", names["message"]
    )
    await connection.execute(
        "INSERT INTO search (tenant, user_id, message_id, conversation_id, terms)"
        " VALUES ('acme', 'ann', $1, $2, 'hi')",
        names["message"],
        names["conversation"],
    )
    for table in await tables(connection):
        count = await connection.fetchval(f"SELECT count(*) FROM {table} WHERE tenant = 'acme'")
        assert count, f"{table} is new: give it a row here"
    yield migrated
    await connection.close()


@pytest.fixture
async def server(filled: str, backends: Services) -> AsyncIterator["Connection[Any]"]:
    """The server's role in that database."""
    connection = await asyncpg.connect(address(backends, "tertulia", filled))
    yield connection
    await connection.close()
