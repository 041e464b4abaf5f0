"""The connection to PostgreSQL: a pool of a role that owns nothing, and the two ways to use it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg

from tertulia.core.errors import Unavailable
from tertulia.core.model import Owner
from tertulia.store import queries
from tertulia.store.guard import refuse_other_schema, refuse_unsafe_role
from tertulia.store.wire import Connection, Pool, Row

_LOST = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
)


# Every query of ours has its index. A plan that was cached while a table was still small would otherwise stay a
# sequential scan, also inside foreign key checks, until the table is analyzed for the first time.
_SERVER_SETTINGS = {"application_name": "tertulia", "jit": "off", "enable_seqscan": "off"}


class Session:
    """Named queries over one connection."""

    def __init__(self, connection: Connection, known: dict[str, queries.Query]) -> None:
        self._connection = connection
        self._known = known

    async def one(self, name: str, /, **given: object) -> Row | None:
        query = self._known[name]
        return await self._connection.fetchrow(query.sql, *query.arguments(given))

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
        pool: Pool = await asyncpg.create_pool(
            url,
            min_size=2,
            max_size=size,
            timeout=5.0,
            command_timeout=command_timeout,
            max_inactive_connection_lifetime=0,
            reset=_nothing_to_reset,
            server_settings=_SERVER_SETTINGS,
        )
        async with pool.acquire() as connection:
            await refuse_unsafe_role(connection)
            await refuse_other_schema(connection)
        return cls(pool)

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[Session]:
        """Single statements, each its own transaction: for functions that set tenant and user themselves."""
        try:
            async with self._pool.acquire(timeout=10) as connection:
                yield Session(connection, self._known)
        except (*_LOST, TimeoutError) as error:
            raise Unavailable("The database is not reachable at the moment. Please try again shortly.") from error

    @asynccontextmanager
    async def transaction(self, owner: Owner) -> AsyncGenerator[Session]:
        """A transaction in which row level security shows what is the owner's, and nothing else."""
        try:
            async with self._pool.acquire(timeout=10) as connection, connection.transaction():
                session = Session(connection, self._known)
                await session.one("enter", tenant=owner.tenant, user=owner.user)
                yield session
        except (*_LOST, TimeoutError) as error:
            raise Unavailable("The database is not reachable at the moment. Please try again shortly.") from error

    async def one(self, name: str, /, **given: object) -> Row:
        """The one row that a function with OUT parameters always yields."""
        async with self.session() as session:
            row = await session.one(name, **given)
            if row is None:
                raise LookupError(name)
            return row

    async def many(self, name: str, /, **given: object) -> list[Row]:
        async with self.session() as session:
            return await session.many(name, **given)

    async def reachable(self) -> bool:
        try:
            async with self._pool.acquire(timeout=2) as connection:
                return await connection.fetchval("SELECT true", timeout=2) is True
        except (*_LOST, TimeoutError):
            return False

    async def close(self) -> None:
        await self._pool.close()


async def _nothing_to_reset(connection: Connection) -> None:
    """All settings we make end with their transaction, so a connection goes back as it came."""
