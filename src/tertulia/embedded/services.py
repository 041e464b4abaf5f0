"""The embedded services of one data directory, from lock to farewell."""

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import asyncpg

from tertulia import logs
from tertulia.embedded import account, binaries, roles, sockets
from tertulia.embedded.errors import EmbeddedError
from tertulia.embedded.lock import Lock
from tertulia.embedded.postgres import Postgres, database_url
from tertulia.embedded.progress import Progress, silent
from tertulia.embedded.secret import make_secret
from tertulia.embedded.valkey import Valkey, redis_url

_WATCH_SECONDS = 0.25
_REST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Services:
    """What a server needs to know of them."""

    database_url: str
    migration_url: str
    redis_url: str
    secret: str


class Embedded:
    """PostgreSQL and Valkey in a data directory, up between start and stop; a dead one is started again."""

    def __init__(self, data_dir: Path, progress: Progress = silent) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self._progress = progress
        self._lock = Lock(self.data_dir)
        self._services: tuple[Postgres, Valkey] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Services:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def sockets(self) -> Path:
        """The directory of the sockets, while both are up."""
        if self._services is None:
            raise EmbeddedError("The embedded services are not running.")
        return self._services[0].sockets

    async def start(self) -> Services:
        """Have both up; raises `DataDirectoryInUse`, or `EmbeddedError` with everything stopped again."""
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire()
            return await self._start()
        except (OSError, asyncpg.PostgresError) as error:
            await self.stop()
            raise EmbeddedError(f"Cannot use the data directory {self.data_dir}: {error}.") from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End both gracefully, within bounded time, and free the data directory."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        if self._services is not None:
            await asyncio.gather(*(service.stop() for service in self._services))
        self._watch, self._services = None, None
        self._lock.release()

    async def _start(self) -> Services:
        postgres, valkey = self._services = self._prepare()
        await _all(postgres.start(), valkey.start())
        self._watch = asyncio.create_task(self._keep_alive(postgres, valkey))
        return Services(
            database_url=database_url(self.sockets, roles.SERVER),
            migration_url=database_url(self.sockets, roles.OWNER),
            redis_url=redis_url(self.sockets),
            secret=make_secret(self.data_dir),
        )

    def _prepare(self) -> tuple[Postgres, Valkey]:
        database = self.data_dir / "postgres"
        user = account.choose(database)
        account.take_over(user, database)
        directory = sockets.private_directory(self.data_dir, user)
        account.open_the_way(
            user, [self.data_dir, directory], [binaries.postgres("postgres"), binaries.valkey()]
        )
        postgres = Postgres(self.data_dir, directory, user, self._progress)
        return postgres, Valkey(self.data_dir, directory, user)

    async def _keep_alive(self, *services: Postgres | Valkey) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            for service in services:
                if not service.alive:
                    await _revive(service)


async def _revive(service: Postgres | Valkey) -> None:
    name = type(service).__name__
    logs.get("embedded").warning("a service ended by itself: starting it again", service=name)
    try:
        await service.start()
    except (EmbeddedError, OSError, asyncpg.PostgresError) as error:
        logs.get("embedded").error("the service does not start", service=name, reason=str(error))
        await asyncio.sleep(_REST_SECONDS)


async def _all(*starting: Coroutine[None, None, None]) -> None:
    """Run them side by side; the first error ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in starting:
                group.create_task(one)
    except ExceptionGroup as errors:
        first: Exception = errors.exceptions[0]
    else:
        return
    raise first
