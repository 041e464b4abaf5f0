"""A PostgreSQL and a Valkey that these tests may kill, apart from those that other tests share."""

import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tertulia.embedded import Embedded, Services
from tests.faults.outages import ready
from tests.faults.world import World, made, until


@pytest.fixture(scope="session")
async def doomed() -> AsyncGenerator[tuple[Embedded, Services, Path]]:
    """The backends, looked after by this process: what is killed comes up again."""
    with tempfile.TemporaryDirectory(prefix="tf-") as name:
        embedded = Embedded(Path(name) / "data")
        async with embedded as services:
            yield embedded, services, Path(name)


@pytest.fixture(scope="session")
async def _world(doomed: tuple[Embedded, Services, Path]) -> AsyncGenerator[World]:
    async with made(*doomed, "tertulia", 1) as world:
        yield world


@pytest.fixture
async def world(_world: World) -> AsyncGenerator[World]:
    """Backends and a server without a worker; no conversations yet."""
    await _world.clear()
    said = len(_world.log)
    yield _world
    print(_world.log[said:])  # shown when the test failed


@pytest.fixture
async def well_again(world: World) -> AsyncGenerator[None]:
    """Whatever a test did to the backends, the next one finds both up."""
    yield
    await world.valkey_is_back()
    await world.postgres_is_back()
    await until(lambda: ready(world))
