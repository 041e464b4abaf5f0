"""What we use of asyncpg, with the types that it lacks."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, cast

import asyncpg

Row: TypeAlias = asyncpg.Record


class Connection(Protocol):
    """One connection to PostgreSQL."""

    async def execute(self, query: str, *arguments: object) -> str: ...
    async def fetch(self, query: str, *arguments: object) -> list[Row]: ...
    async def fetchrow(self, query: str, *arguments: object) -> Row | None: ...
    async def fetchval(self, query: str, *arguments: object) -> Any: ...
    def transaction(self) -> AbstractAsyncContextManager[object]: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float | None = None) -> None: ...


async def connect(url: str, *, timeout: float, **options: Any) -> Connection:
    """A new connection; raises what asyncpg raises."""
    driver: Any = asyncpg
    return cast(Connection, await driver.connect(url, timeout=timeout, **options))
