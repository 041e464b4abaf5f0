"""What tests share: one PostgreSQL and Valkey, one scripted Gemini, one server with its worker."""

import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

from tertulia.embedded import Embedded, Services
from tertulia.store.migrate import migrate
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.instance import SECRET, Instance


@pytest.fixture(scope="session")
def folder() -> Generator[Path]:
    """A folder with a short path, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tt-") as name:
        yield Path(name)


@pytest.fixture(scope="session")
async def backends(folder: Path) -> AsyncGenerator[Services]:
    """A real PostgreSQL, migrated, and a real Valkey."""
    async with Embedded(folder / "data") as services:
        await migrate(services.migration_url, "tertulia")
        yield services


@pytest.fixture(scope="session")
def gemini() -> Generator[ScriptedGemini]:
    """A server that speaks Gemini's protocol and says what a test tells it to."""
    with ScriptedGemini() as server:
        yield server


@pytest.fixture(scope="session")
def settings(backends: Services, gemini: ScriptedGemini) -> dict[str, Any]:
    """Settings for a server or worker that uses the shared backends and the scripted Gemini."""
    return {
        "database_url": backends.database_url,
        "redis_url": backends.redis_url,
        "secret": SECRET,
        "google_api_key": "test-key",
        "model_base_url": gemini.url,
        "user_requests_per_minute": 100_000,
        "tenant_requests_per_minute": 1_000_000,
    }


@pytest.fixture(scope="session")
def server(settings: dict[str, Any], folder: Path) -> Generator[Instance]:
    """A server with its worker."""
    with Instance("serve", folder, "--port", "0", **settings) as running:
        yield running


@pytest.fixture
async def ann(server: Instance) -> AsyncGenerator[User]:
    async with User(server.url, "ann") as user:
        yield user


@pytest.fixture
async def bob(server: Instance) -> AsyncGenerator[User]:
    async with User(server.url, "bob") as user:
        yield user
