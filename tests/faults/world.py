"""Backends that may be killed, processes that may be stopped, and conversations watched meanwhile."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import psutil
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tertulia.embedded import Embedded, Services, account, processes
from tertulia.store.migrate import migrate
from tests.faults.listening import Listener
from tests.support.client import User
from tests.support.instance import SECRET, Instance

QUICK = {"lease_seconds": 1.5, "sweep_seconds": 0.3, "drain_seconds": 0}


class World:
    """One database and one Valkey database, with what is needed to break and to examine them."""

    def __init__(
        self, embedded: Embedded, services: Services, folder: Path, database: str, number: int
    ) -> None:
        self.embedded = embedded
        self.folder = folder
        self._sockets = embedded.sockets
        self._database = database
        self.settings: dict[str, Any] = {
            "database_url": services.database_url.replace("/tertulia?", f"/{database}?"),
            "redis_url": f"{services.redis_url}?db={number}",
            "secret": SECRET,
            "model": "demo:",
            "user_requests_per_minute": 100_000,
            "tenant_requests_per_minute": 1_000_000,
            **QUICK,
        }
        self.valkey = Redis.from_url(self.settings["redis_url"])
        self.url = ""
        self.server_itself: Instance | None = None

    @property
    def log(self) -> str:
        """What the server has said."""
        return self.server_itself.text if self.server_itself else ""

    async def sql(self, query: str, *arguments: object) -> list[Any]:
        """Rows as the superuser sees them: all."""
        connection = await asyncpg.connect(host=str(self._sockets), user="postgres", database=self._database)
        try:
            return await connection.fetch(query, *arguments)
        finally:
            await connection.close()

    async def one(self, query: str, *arguments: object) -> Any:
        return (await self.sql(query, *arguments))[0][0]

    async def redefine(self, function: str, *changes: tuple[str, str]) -> None:
        """Replace parts of the text of one of our functions; each part must be there."""
        text = await self.one("SELECT pg_get_functiondef(to_regproc($1)::oid)", f"api.{function}")
        for old, new in changes:
            assert old in text, f"{function} no longer says {old!r}"
            text = text.replace(old, new)
        await self.sql(text)

    async def clear(self) -> None:
        """Forget all conversations and events, so that a test begins with nothing."""
        await self.sql("TRUNCATE conversations, notifications, idempotency CASCADE")
        await self.valkey.flushdb()

    @asynccontextmanager
    async def server(
        self, failpoints: str = "", *, with_worker: bool = False, **options: Any
    ) -> AsyncGenerator[Instance]:
        given = () if with_worker else ("--no-worker",)
        settings = {**self.settings, **options}
        instance = Instance("serve", self.folder, "--port", "0", *given, failpoints=failpoints, **settings)
        async with running(instance) as started:
            yield started

    @asynccontextmanager
    async def patched(self, how: str, failpoints: str = "", **options: Any) -> AsyncGenerator[Instance]:
        """A server with its worker in which one part is another: see `patched.py`."""
        instance = Instance("serve", self.folder, failpoints=failpoints, **{**self.settings, **options})
        script = str(Path(__file__).with_name("patched.py"))
        instance._command = [sys.executable, script, how, "serve", "--port", "0"]
        async with running(instance) as started:
            yield started

    @asynccontextmanager
    async def worker(self, failpoints: str = "", **options: Any) -> AsyncGenerator[Instance]:
        instance = Instance("worker", self.folder, failpoints=failpoints, **{**self.settings, **options})
        async with running(instance) as started:
            yield started

    @asynccontextmanager
    async def talk(self, name: str = "ann", tenant: str = "acme", url: str = "") -> AsyncGenerator["Talk"]:
        """A conversation that somebody listens to from before its first message."""
        async with User(url or self.url, name, tenant) as user, user.socket() as socket:
            conversation, session = uuid4(), uuid4().hex
            await self.sql(
                "INSERT INTO conversations (tenant, id, user_id, session_id) VALUES ($1, $2, $3, $4)",
                tenant, conversation, name, session,
            )  # fmt: skip
            await socket.subscribe(session)
            await socket.until("subscribed")
            async with Listener(socket, from_the_start=True) as listener:
                yield Talk(self, user, str(conversation), session, listener)

    def postgres(self) -> list[int]:
        """The pids of the database: the postmaster first, then all that it started."""
        directory = self.embedded.data_dir / "postgres"
        found = processes.find("postgres", f"-D {directory}", account.choose(directory))
        return [found[0].pid, *(child.pid for child in psutil.Process(found[0].pid).children(recursive=True))]

    def valkeys(self) -> list[int]:
        directory = self.embedded.data_dir
        found = processes.find("valkey-server", f"--dir {directory}", account.choose(directory / "postgres"))
        return [process.pid for process in found]

    async def valkey_is_back(self) -> None:
        await until(self._pong)

    async def postgres_is_back(self) -> None:
        await until(self._select)

    async def _pong(self) -> bool:
        try:
            return await self.valkey.ping()
        except (OSError, RedisError):
            return False

    async def _select(self) -> bool:
        try:
            return await self.one("SELECT true")
        except (OSError, asyncpg.PostgresError):
            return False


class Talk:
    """One conversation, what was said in it, and who listens."""

    def __init__(self, world: World, user: User, conversation: str, session: str, listener: Listener) -> None:
        self.world = world
        self.user = user
        self.conversation = conversation
        self.session = session
        self.listener = listener
        self.sent: list[dict[str, Any]] = []

    async def send(self, text: str, *, key: str | None = None) -> dict[str, Any]:
        sent = await self.user.send(text, self.conversation, key=key)
        self.sent.append(sent)
        return sent

    async def ended(self, sent: dict[str, Any], patience: float = 20) -> None:
        await self.listener.ended(sent["turn_id"], patience)

    @asynccontextmanager
    async def again(self, cursor: str) -> AsyncGenerator[Listener]:
        """Somebody who comes back after having seen everything up to the cursor."""
        async with self.user.socket() as socket:
            await socket.subscribe(self.session, cursor)
            async with Listener(socket, from_the_start=False) as listener:
                yield listener


@asynccontextmanager
async def running(instance: Instance) -> AsyncGenerator[Instance]:
    """Start and end it without holding up the loop, in which the backends are looked after."""
    try:
        yield await asyncio.to_thread(instance.__enter__)
    finally:
        await asyncio.to_thread(instance.__exit__)


async def until(condition: Callable[[], Any], patience: float = 20) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + patience
    while True:
        found = condition()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.02)


async def died(instance: Instance, patience: float = 20) -> None:
    """Wait until its failpoint has killed it."""
    assert await asyncio.to_thread(instance.ended, patience) == -signal.SIGKILL


async def halted(instance: Instance, patience: float = 20) -> None:
    """Wait until its failpoint has stopped it."""
    await until(instance.stopped, patience)


def tell(number: int, pids: list[int]) -> None:
    """Send a signal to processes of ours; one that is gone already is as it should be."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@asynccontextmanager
async def frozen(pids: list[int]) -> AsyncGenerator[None]:
    """They neither answer nor end, until this is left."""
    tell(signal.SIGSTOP, pids)
    try:
        yield
    finally:
        tell(signal.SIGCONT, pids[::-1])


@asynccontextmanager
async def made(
    embedded: Embedded, services: Services, folder: Path, name: str, number: int
) -> AsyncGenerator[World]:
    """A world in a database of its own, with a server."""
    if name != "tertulia":
        postgres = await asyncpg.connect(host=str(embedded.sockets), user="postgres", database="postgres")
        await postgres.execute(f"CREATE DATABASE {name} OWNER tertulia_owner TEMPLATE template0")
        await postgres.close()
    world = World(embedded, services, folder, name, number)
    await world.sql("CREATE EXTENSION IF NOT EXISTS vector")
    await migrate(services.migration_url.replace("/tertulia?", f"/{name}?"), "tertulia")
    async with world.server() as server:
        world.url, world.server_itself = server.url, server
        yield world
    await world.valkey.aclose()
