"""The database as a superuser sees it: what a request has written, whoever it belongs to."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg

# `search` and `unindexed` are left out: what they hold follows from the messages, a moment later.
COUNTED = (
    "users",
    "conversations",
    "messages",
    "turns",
    "notifications",
    "idempotency",
    "audit",
    "agents",
    "briefings",
)


async def connect(url: str, **options: Any) -> "asyncpg.Connection[Any]":
    """A connection, past row level security, to the server that the URL names."""
    return await asyncpg.connect(url, user="postgres", **options)


def owned_by(url: str, role: str) -> str:
    """The same database, as another role."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}@{parts.hostname or ''}").geturl()


class Unwritten(Protocol):
    """`async with unwritten():` what happens inside leaves no row behind."""

    def __call__(self) -> AbstractAsyncContextManager[None]: ...


class Rows:
    """Counts the rows of every table that a request may write to."""

    def __init__(self, connection: "asyncpg.Connection[Any]") -> None:
        self.connection = connection

    async def count(self, tenant: str) -> dict[str, int]:
        """How many rows a tenant has in each table."""
        queries = [f"SELECT '{name}' AS name, count(*) FROM {name} WHERE tenant = $1" for name in COUNTED]
        found = await self.connection.fetch(" UNION ALL ".join(queries), tenant)
        return {row["name"]: row["count"] for row in found}
