"""Databases of their own inside the shared PostgreSQL, as superuser, owner and server see them."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tertulia.embedded import Services
from tertulia.store.migrate import migrate

Scratch = Callable[[], Awaitable[str]]


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
