"""The embedded PostgreSQL: made once, then started, or adopted when a killed server left it running."""

import asyncio
import secrets
import shutil
import subprocess
import time
from collections.abc import Coroutine
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGQUIT

import asyncpg

from tertulia import logs
from tertulia.embedded import binaries, processes, roles
from tertulia.embedded.account import Account
from tertulia.embedded.errors import EmbeddedError
from tertulia.embedded.progress import Progress, when_slow

_CREATED_WITH = (
    *("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"),
    *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-sync"),
)
# An operator may change these in postgresql.conf.
_FOOTPRINT = {
    "shared_buffers": "128MB",
    "max_connections": "100",
    "max_parallel_workers_per_gather": "0",  # parallel queries need more of /dev/shm than a container has
    "jit": "off",
    "log_checkpoints": "off",
    "log_min_messages": "log",  # what the server does, not what statements did wrong
    "log_min_error_statement": "panic",  # no contents of messages in a log
}
# These are not open to change.
_SAFETY = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
}
_HEALTH_SECONDS = 5.0
_RECOVERY_SECONDS = 600.0
_BY_FORCE = ((SIGQUIT, 3.0), (SIGKILL, 3.0))
_FAREWELL = ((SIGINT, 15.0), *_BY_FORCE)


class Postgres:
    """A PostgreSQL in `data_dir/postgres` that listens on a socket in `sockets` only."""

    def __init__(self, data_dir: Path, sockets: Path, account: Account, progress: Progress) -> None:
        self._data_dir = data_dir
        self.sockets = sockets
        self._account = account
        self._progress = progress
        self._directory = data_dir / "postgres"
        self._log = data_dir / "postgres.log"
        self._process: processes.Process | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    async def start(self) -> None:
        """Be up, with roles, database and pgvector in place."""
        await _whole(asyncio.to_thread(self._create))
        if not await self._adopt():
            await self._launch()
        await roles.ensure(self.sockets)

    async def stop(self) -> None:
        """End it after a checkpoint; by force when it does not listen."""
        if self._process is not None:
            await self._process.stop(_FAREWELL)

    def _create(self) -> None:
        """Make the database if there is none; whole or absent after a crash."""
        for leftover in self._data_dir.glob("postgres.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        if self._directory.exists():
            return self._check_version()
        self._progress("Preparing the database for the first time…")
        draft = self._data_dir / f"postgres.new-{secrets.token_hex(4)}"
        draft.mkdir(mode=0o700)
        self._account.give(draft)
        settings = [part for name, value in _FOOTPRINT.items() for part in ("--set", f"{name}={value}")]
        self._initdb("--pgdata", str(draft), *_CREATED_WITH, *settings)
        self._initdb("--pgdata", str(draft), "--sync-only")
        draft.rename(self._directory)
        return None

    def _initdb(self, *options: str) -> None:
        done = subprocess.run(  # noqa: S603  (argv is ours)
            [str(binaries.postgres("initdb")), *options],
            capture_output=True,
            text=True,
            cwd="/",
            env=processes.ENVIRONMENT,
            **self._account.spawn,
        )
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no reason given"]
            raise EmbeddedError(f"Cannot make the database in {self._data_dir}: {said[-1]}")

    def _check_version(self) -> None:
        made = (self._directory / "PG_VERSION").read_text("ascii").strip()
        if made != binaries.POSTGRES_MAJOR:
            raise EmbeddedError(
                f"The database in {self._directory} was made by PostgreSQL {made}, and this tertulia brings "
                f"{binaries.POSTGRES_MAJOR}: make a backup with the release that wrote it, and restore that."
            )

    @property
    def _argv(self) -> list[str]:
        settings = [part for name, value in _SAFETY.items() for part in ("-c", f"{name}={value}")]
        where = ["-D", str(self._directory), "-k", str(self.sockets), "-p", "5432"]
        return [str(binaries.postgres("postgres")), *where, *settings]

    async def _adopt(self) -> bool:
        """Take over what a killed server left running, if it answers and runs as we would start it."""
        for found in processes.find("postgres", f"-D {self._directory}", self._account):
            self._process = found
            answers = await self._answers(found, _HEALTH_SECONDS)
            if answers and found.command == " ".join(self._argv):
                logs.get("embedded").info("adopted the running database", pid=found.pid)
                return True
            await found.stop(_FAREWELL if answers else _BY_FORCE)
        return False

    async def _launch(self) -> None:
        # No process of this database is left: its lock files are stale, whatever has their pid now.
        for stale in (self._directory / "postmaster.pid", *self.sockets.glob(".s.PGSQL.*")):
            stale.unlink(missing_ok=True)
        deadline = time.monotonic() + _HEALTH_SECONDS
        while True:
            self._process = processes.start(self._argv, self._account, self._log)
            with when_slow(self._progress, "Waiting for the database…"):
                if await self._answers(self._process, _RECOVERY_SECONDS):
                    return
            said = processes.last_line(self._log)
            # Backends of a killed postmaster take a moment to notice.
            if "shared memory block" not in said or time.monotonic() > deadline:
                await self.stop()
                raise EmbeddedError(f"The database does not start: {said} (see {self._log})")

    async def _answers(self, process: processes.Process, seconds: float) -> bool:
        """Whether it takes connections within the seconds; False at once when it has ended."""
        socket, deadline = self.sockets / ".s.PGSQL.5432", time.monotonic() + seconds
        while process.alive and time.monotonic() < deadline:
            if socket.exists():
                try:
                    connection = await roles.connect(self.sockets, "postgres")
                except (OSError, asyncpg.PostgresError):
                    pass  # not yet
                else:
                    await connection.close()
                    return True
            await asyncio.sleep(0.005)
        return False


def database_url(sockets: Path, role: str) -> str:
    """The address of the embedded database for a role."""
    return f"postgresql://{role}@/{roles.DATABASE}?host={sockets}&port=5432"


async def _whole(work: Coroutine[None, None, None]) -> None:
    """Wait for work that must not be left half done, even when we are told to stop."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
