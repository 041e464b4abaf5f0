"""Somebody to be, and ways to look behind the server's back."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from redis.asyncio import Redis

from tertulia.embedded import Services
from tests.support.backends import of_superuser, private
from tests.support.client import User
from tests.support.instance import Instance

Someone = Callable[..., Awaitable[User]]
Alone = Callable[..., Awaitable[dict[str, Any]]]


def word(text: str = "w") -> str:
    """A word that nobody has said before."""
    return f"{text}-{uuid4().hex[:8]}"


@pytest.fixture
async def someone(server: Instance) -> AsyncGenerator[Someone]:
    """Makes users whom nobody has met before, of the shared server or of another."""
    async with AsyncExitStack() as stack:

        async def make(
            name: str = "user", tenant: str = "acme", *, at: Instance = server, **claims: Any
        ) -> User:
            return await stack.enter_async_context(User(at.url, word(name), tenant, **claims))

        yield make


@pytest.fixture
async def database(backends: Services) -> AsyncGenerator[asyncpg.Connection]:
    """The shared server's database, as the superuser sees it."""
    connection = await asyncpg.connect(of_superuser(backends.database_url))
    yield connection
    await connection.close()


@pytest.fixture
async def valkey(backends: Services) -> AsyncGenerator[Redis]:
    """The shared server's Valkey."""
    async with Redis.from_url(backends.redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture(scope="session")
def alone(backends: Services, settings: dict[str, Any]) -> Alone:
    """Makes the settings of a server that shares neither database nor stream with others."""

    async def make(**given: Any) -> dict[str, Any]:
        return settings | await private(backends) | given

    return make


@pytest.fixture(scope="session")
async def strict_settings(alone: Alone) -> dict[str, Any]:
    """Narrow limits, short patience, and a long memory."""
    return await alone(
        model_timeout=1,
        queued_per_conversation=3,
        open_turns_per_user=5,
        delete_seconds=1.5,
        sweep_seconds=0.2,
        context_window=30,
    )


@pytest.fixture(scope="session")
def strict(strict_settings: dict[str, Any], folder: Path) -> Generator[Instance]:
    """A server with a database of its own that is soon busy, soon tired of waiting, and soon erases."""
    with Instance("serve", folder, "--port", "0", **strict_settings) as running:
        yield running


@pytest.fixture
async def strict_database(strict_settings: dict[str, Any]) -> AsyncGenerator[asyncpg.Connection]:
    """The strict server's database, as the superuser sees it."""
    connection = await asyncpg.connect(of_superuser(strict_settings["database_url"]))
    yield connection
    await connection.close()
