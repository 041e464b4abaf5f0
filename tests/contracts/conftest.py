"""Real servers for the contract suites, and the context stores in each kind."""

from collections.abc import AsyncIterator, Iterator

import pytest
import structlog
from redis.asyncio import Redis
from structlog.testing import capture_logs

from tertulia.context.port import ContextStores, ConversationStore
from tests.contracts.contexts import ANA, Bench, Entry, HandClock
from tests.support.valkey import running_valkey

CONTEXT_DATABASE = 7


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    with running_valkey() as url:
        yield url


@pytest.fixture
async def valkey(valkey_url: str) -> AsyncIterator[Redis]:
    """A client of an empty database, which no other suite uses."""
    async with Redis.from_url(valkey_url, db=CONTEXT_DATABASE) as client:
        await client.flushdb()
        yield client


@pytest.fixture(params=["memory", "redis"])
def bench(request: pytest.FixtureRequest, log: list[Entry]) -> Bench:
    """Each kind of store in turn; the log is captured from before anything opens."""
    return Bench(request.param, request.getfixturevalue("valkey") if request.param == "redis" else None)


@pytest.fixture
def stores(bench: Bench) -> ContextStores:
    return bench.stores()


@pytest.fixture
def store(stores: ContextStores) -> ConversationStore:
    return stores.open(ANA)


@pytest.fixture
def clock(bench: Bench) -> HandClock:
    return bench.clock


@pytest.fixture
def log() -> Iterator[list[Entry]]:
    structlog.reset_defaults()
    with capture_logs() as entries:
        yield entries
