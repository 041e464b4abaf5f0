"""A user of a tenant of its own, and a check that what was refused was not written."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from tertulia.embedded import Services
from tests.support.client import User
from tests.support.instance import Instance
from tests.support.rows import Rows, Unwritten, connect


@pytest.fixture
async def rows(backends: Services) -> AsyncIterator[Rows]:
    connection = await connect(backends.migration_url)
    yield Rows(connection)
    await connection.close()


@pytest.fixture
async def user(server: Instance) -> AsyncGenerator[User]:
    """Somebody whose tenant nobody else writes to, and who is known already."""
    async with User(server.url, "ulla", f"inputs-{uuid4().hex[:8]}") as somebody:
        assert (await somebody.http.get("/api/notifications")).status_code == 200
        yield somebody


@pytest.fixture
async def admin(user: User) -> AsyncGenerator[User]:
    """An admin of that tenant, known already too."""
    async with User(user.url, "ada", user.tenant, role="admin") as somebody:
        assert (await somebody.http.get("/api/notifications")).status_code == 200
        yield somebody


@pytest.fixture
def unwritten(rows: Rows, user: User) -> Unwritten:
    """What happens inside leaves no row behind."""

    @asynccontextmanager
    async def watch() -> AsyncIterator[None]:
        before = await rows.count(user.tenant)
        yield
        assert await rows.count(user.tenant) == before

    return watch
