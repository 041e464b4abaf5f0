"""Backups of the embedded database: one file, in the custom format of pg_dump."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import cast

from tertulia.embedded import attached, binaries, processes, roles
from tertulia.embedded.errors import DataDirectoryInUse, EmbeddedError
from tertulia.embedded.progress import Progress, silent, when_slow
from tertulia.embedded.services import Embedded

Migrate = Callable[[str, str], Awaitable[object]]

_INCOMING = "tertulia_incoming"
_USER_TABLES = """
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
"""


async def backup(data_dir: Path, file: Path, progress: Progress = silent) -> None:
    """Write the database to the file, whether the server runs or not; the file is whole, or not there."""
    if not (data_dir / "postgres").is_dir():
        raise EmbeddedError(f"There is no database in {data_dir} yet.")
    draft = file.with_name(f".{file.name}.{secrets.token_hex(6)}.part")
    async with _sockets(data_dir, progress) as sockets:
        with when_slow(progress, "Writing the backup…"):
            os.close(_private(draft))
            try:
                await _client(
                    "pg_dump", sockets, "--format=custom", f"--dbname={roles.DATABASE}", f"--file={draft}"
                )
                draft.replace(file)
            finally:
                draft.unlink(missing_ok=True)


async def restore(
    data_dir: Path, file: Path, migrate: Migrate, *, force: bool = False, progress: Progress = silent
) -> None:
    """Replace the database by what the file holds; what was there stays until all of it has been read.

    `migrate` is run first on an empty database, for roles are not part of a dump.
    """
    await _run("pg_restore", "--list", str(file), doing=f"Cannot read {file} as a backup")
    embedded = Embedded(data_dir, progress)
    async with embedded as services:
        if not force and await _tables(embedded.sockets):
            raise EmbeddedError(
                f"The database in {data_dir} is not empty: give --force to replace what it holds."
            )
        with when_slow(progress, "Reading the backup…"):
            await migrate(services.migration_url, roles.SERVER)
            await _replace(embedded.sockets, file)
            await migrate(services.migration_url, roles.SERVER)


async def _replace(sockets: Path, file: Path) -> None:
    connection = await roles.connect(sockets, "postgres")
    try:
        await connection.execute(f"DROP DATABASE IF EXISTS {_INCOMING}")
        await roles.create(connection, _INCOMING)
        options = ("--exit-on-error", "--single-transaction")
        await _client("pg_restore", sockets, *options, f"--dbname={_INCOMING}", str(file))
        await connection.execute(f"DROP DATABASE {roles.DATABASE} WITH (FORCE)")
        await connection.execute(f"ALTER DATABASE {_INCOMING} RENAME TO {roles.DATABASE}")
    finally:
        await connection.close()


async def _tables(sockets: Path) -> int:
    connection = await roles.connect(sockets, roles.DATABASE)
    try:
        return cast("int", await connection.fetchval(_USER_TABLES))
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def _sockets(data_dir: Path, progress: Progress) -> AsyncGenerator[Path]:
    """The sockets of the running server, or of one started for the duration."""
    embedded = Embedded(data_dir, progress)
    try:
        await embedded.start()
    except DataDirectoryInUse:
        found = attached.sockets(data_dir)
        if found is None:
            raise EmbeddedError(
                f"The server of {data_dir} is starting or stopping: try again in a moment."
            ) from None
        yield found
        return
    try:
        yield embedded.sockets
    finally:
        await embedded.stop()


async def _client(program: str, sockets: Path, *options: str) -> None:
    where = (f"--host={sockets}", "--port=5432", "--username=postgres", "--no-password")
    await _run(program, *where, *options, doing=f"{program} failed")


async def _run(program: str, *options: str, doing: str) -> None:
    process = await asyncio.create_subprocess_exec(
        str(binaries.postgres(program)),
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=processes.ENVIRONMENT,
    )
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    if process.returncode:
        lines = said.decode("utf-8", "replace").strip().splitlines() or ["it gave no reason"]
        raise EmbeddedError(f"{doing}: {lines[0]}")


def _private(path: Path) -> int:
    """A new file of that name: one that somebody put there is not written to, nor what it leads to."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
