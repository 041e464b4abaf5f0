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


class NothingIsLeftOut:
    """Makes a run fail in which a test was skipped or expected to fail, also one that is spread over processes."""

    def __init__(self) -> None:
        self._left_out: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped or hasattr(report, "wasxfail"):
            self._left_out.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._left_out.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._left_out and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name in self._left_out:
            terminalreporter.write_line(f"Left out, which counts as a failure: {name}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NothingIsLeftOut())
