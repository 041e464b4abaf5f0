"""The connection to PostgreSQL: a pool of a role that owns nothing, and the two ways to use it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID

import asyncpg

from tertulia.core.errors import Unavailable
from tertulia.core.model import Owner
from tertulia.store import queries
from tertulia.store.guard import refuse_other_schema, refuse_unsafe_role
from tertulia.store.pool import Pool
from tertulia.store.wire import Connection, Row, connect

# What says nothing about the statement: the same may succeed on another connection, or a moment later.
_LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,  # this server has become a standby
    asyncpg.TransactionRollbackError,  # such as a deadlock
    asyncpg.PostgresIOError,
)


# Every query of ours has its index. A plan that was cached while a table was still small would otherwise stay a
# sequential scan, also inside foreign key checks, until the table is analyzed for the first time.
_SERVER_SETTINGS = {"application_name": "tertulia", "jit": "off", "enable_seqscan": "off"}

_TOGETHER = 3.0  # seconds for what many wait for

# Sorts behind every row that is paged by time: where a first page begins.
THE_END = (datetime.max.replace(tzinfo=UTC), UUID(int=2**128 - 1))


class Session:
    """Named queries over one connection."""

    def __init__(self, connection: Connection, known: dict[str, queries.Query]) -> None:
        self._connection = connection
        self._known = known

    async def one(self, name: str, /, **given: object) -> Row | None:
        query = self._known[name]
        return await self._connection.fetchrow(query.sql, *query.arguments(given))

    async def call(self, name: str, /, **given: object) -> Row:
        """The one row that a function yields."""
        row = await self.one(name, **given)
        if row is None:
            raise LookupError(name)
        return row

    async def many(self, name: str, /, **given: object) -> list[Row]:
        query = self._known[name]
        return await self._connection.fetch(query.sql, *query.arguments(given))


class Database:
    """Runs named queries: each on its own, or together in a transaction that belongs to one user."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known = queries.load()

    @classmethod
    async def open(cls, url: str, size: int, command_timeout: float = 15.0) -> "Database":
        """Connect, and make sure that the role is harmless and the schema is the one we know."""

        async def make() -> Connection:
            return await connect(
                url, timeout=5.0, command_timeout=command_timeout, server_settings=_SERVER_SETTINGS
            )

        database = cls(Pool(make, size))
        async with database.lent() as connection:
            await refuse_unsafe_role(connection)
            await refuse_other_schema(connection)
        return database

    async def one(self, name: str, /, **given: object) -> Row:
        """The one row of a function of schema `api`, which sets tenant and user itself; its own transaction."""
        query = self._known[name]
        async with self.lent() as connection:
            row = await connection.fetchrow(query.sql, *query.arguments(given))
        if row is None:
            raise LookupError(name)
        return row

    async def many(self, name: str, /, **given: object) -> list[Row]:
        """All rows of such a function."""
        query = self._known[name]
        async with self.lent() as connection:
            return await connection.fetch(query.sql, *query.arguments(given))

    async def together(self, name: str, calls: list[dict[str, object]]) -> list[Row]:
        """The rows of many such calls, in one transaction: where one fails, nothing was done."""
        query = self._known[name]
        arguments = [query.arguments(given) for given in calls]
        async with self.lent() as connection:
            return await connection.fetchmany(query.sql, arguments, timeout=_TOGETHER)

    @asynccontextmanager
    async def transaction(self, owner: Owner, role: str = "user") -> AsyncGenerator[Session]:
        """A transaction in which row level security shows what is the owner's, and lets them do what the role may."""
        async with self.lent() as connection, connection.transaction():
            session = Session(connection, self._known)
            await session.one("enter", tenant=owner.tenant, user=owner.user, role=role)
            yield session

    async def reachable(self) -> bool:
        try:
            async with asyncio.timeout(2), self.lent() as connection:
                return await connection.fetchval("SELECT true") is True
        except (Unavailable, TimeoutError):
            return False

    async def close(self) -> None:
        await self._pool.close()

    def lent(self) -> "_Lent":
        """A connection, for the length of a `with`."""
        return _Lent(self._pool)


class _Lent:
    """A connection for the length of a `with`; what goes wrong with it becomes `Unavailable`.

    All settings we make end with their transaction, so a connection goes back as it came; one on which something
    was interrupted or got lost does not go back.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        try:
            self._connection = await self._pool.take()
        except (*_LOST, TimeoutError) as error:
            raise _unavailable() from error
        return self._connection

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._connection is None:
            return
        # (A parameter of the wrong kind is an InterfaceError too, and a ValueError besides.)
        lost = isinstance(error, (*_LOST, TimeoutError)) and not isinstance(error, ValueError)
        broken = lost or (error is not None and not isinstance(error, Exception))
        self._pool.give(self._connection, sound=not broken)
        if lost:
            raise _unavailable() from error


def _unavailable() -> Unavailable:
    return Unavailable("The database is not reachable at the moment. Please try again shortly.")
