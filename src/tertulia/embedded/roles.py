"""The roles and the database inside the embedded PostgreSQL."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, cast

import asyncpg

DATABASE = "tertulia"
OWNER = "tertulia_owner"
SERVER = "tertulia"

_OPTIONS = {OWNER: "LOGIN CREATEROLE", SERVER: "LOGIN"}


class Connection(Protocol):
    """What is used of a connection of asyncpg, which has no types of its own."""

    async def execute(self, query: str, *args: object) -> str: ...
    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]: ...
    async def fetchval(self, query: str, *args: object) -> object: ...
    async def close(self) -> None: ...


async def connect(sockets: Path, database: str) -> Connection:
    """A connection as superuser; nothing in the environment changes where it goes."""
    opening = cast("Callable[..., Awaitable[Connection]]", asyncpg.connect)  # pyright: ignore[reportUnknownMemberType]
    where = {"host": str(sockets), "port": 5432, "ssl": False, "timeout": 2}
    return await opening(**where, user="postgres", password="", database=database)


async def ensure(sockets: Path) -> None:
    """Create what is missing, so that a first start that was cut short is completed by the next."""
    connection = await connect(sockets, "postgres")
    try:
        present = {str(row["rolname"]) for row in await connection.fetch("SELECT rolname FROM pg_roles")}
        for role in _OPTIONS.keys() - present:
            await connection.execute(f"CREATE ROLE {role} {_OPTIONS[role]}")
        if not await exists(connection, DATABASE):
            await create(connection, DATABASE)
    finally:
        await connection.close()
    await _ensure_vector(sockets)


async def exists(connection: Connection, database: str) -> bool:
    return await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", database) is not None


async def create(connection: Connection, database: str) -> None:
    """An empty database of the owner's."""
    await connection.execute(f"CREATE DATABASE {database} OWNER {OWNER} TEMPLATE template0")


async def _ensure_vector(sockets: Path) -> None:
    connection = await connect(sockets, DATABASE)
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    finally:
        await connection.close()
