"""What all measurements stand on: one PostgreSQL and Valkey, a model server, our server, the bare one."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from tests.support.client import token
from tests.support.instance import SECRET, Instance

from tertulia.embedded import Services

TENANT = "bench"


class Stage:
    """Starts what a measurement needs."""

    def __init__(self, services: Services, folder: Path) -> None:
        self.services = services
        self.folder = folder
        self.admin_url = services.database_url.replace("//tertulia@", "//postgres@", 1)

    def settings(self, model_url: str = "http://127.0.0.1:9") -> dict[str, Any]:
        """Without limits that would be measured instead of the server."""
        return {
            "database_url": self.services.database_url,
            "redis_url": self.services.redis_url,
            "secret": SECRET,
            "google_api_key": "bench",
            "model_base_url": model_url,
            "user_requests_per_minute": 100_000_000,
            "tenant_requests_per_minute": 100_000_000,
            "queued_per_conversation": 10_000_000,
            "open_turns_per_user": 0,
            "open_turns_per_tenant": 0,
            "sockets_per_user": 100_000,
            "log_level": "warning",
        }

    def server(self, *arguments: str, model_url: str = "http://127.0.0.1:9", **more: Any) -> Instance:
        return Instance("serve", self.folder, "--port", "0", *arguments, **(self.settings(model_url) | more))

    @contextmanager
    def bare(self) -> Generator[str]:
        """The address of the bare server."""
        port = _free_port()
        command = [sys.executable, "-m", "bench.bare", self.admin_url, self.services.redis_url, str(port)]
        with _process(command, "ready"):
            yield f"http://127.0.0.1:{port}"

    @contextmanager
    def model(self, chunks: int, first: float) -> Generator[str]:
        """The address of a model server that answers so many chunks at once after so many seconds."""
        port = _free_port()
        command = [sys.executable, "-m", "tests.support.gemini", "--port", str(port)]
        with _process([*command, "--chunks", str(chunks), "--first", str(first)], str(port)):
            yield f"http://127.0.0.1:{port}"

    async def conversations(self, user: str, names: list[UUID]) -> None:
        """Empty conversations of one user."""
        await self.sql("INSERT INTO users (tenant, id) VALUES ($1, $2) ON CONFLICT DO NOTHING", TENANT, user)
        await self.sql(
            "INSERT INTO conversations (tenant, id, user_id, session_id)"
            " SELECT $1, name, $2, 's-' || name FROM unnest($3::uuid[]) AS name",
            TENANT, user, names,
        )  # fmt: skip

    async def sql(self, statement: str, *arguments: Any) -> Any:
        connection = await asyncpg.connect(self.admin_url)
        try:
            return await connection.fetch(statement, *arguments)
        finally:
            await connection.close()


def tokens(count: int, name: str) -> list[str]:
    return [token(f"{name}-{index}", TENANT) for index in range(count)]


@contextmanager
def _process(command: list[str], ready: str) -> Generator[None]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert re.search(ready, process.stdout.readline())
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
