"""The services that a server brings along: they start, survive what can happen to them, and end."""

import asyncio
import os
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import psutil
import pytest
from redis.asyncio import Redis

from tertulia.embedded import DataDirectoryInUse, Embedded, EmbeddedError, account, roles
from tests.embedded.serving import processes_of


def pid_of(directory: Path, program: str) -> int:
    return next(p.pid for p in processes_of(directory) if Path(p.cmdline()[0]).name == program)


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@contextmanager
def killed_server(directory: Path) -> Generator[None]:
    """A server that was killed with its services up."""
    command = [sys.executable, "-m", "tests.embedded.holder", str(directory)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    holder.kill()
    holder.wait()
    holder.stdout.close()
    yield


async def until(answer: Callable[[], Awaitable[bool]], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not await answer():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)


async def test_the_first_start_gives_a_server_all_it_needs_in_under_two_and_a_half_seconds(data_dir: Path):
    told: list[str] = []
    began = time.monotonic()
    async with Embedded(data_dir, told.append) as services:
        took = time.monotonic() - began
        async with connected(services.database_url) as connection:
            row = await connection.fetchrow(
                "SELECT rolname, rolsuper, rolcreaterole, rolbypassrls FROM pg_roles"
                " WHERE rolname = current_user"
            )
            assert tuple(row) == ("tertulia", False, False, False)
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("CREATE TABLE mine (id int)")
            assert await connection.fetchval("SELECT '[1,2]'::vector <-> '[1,4]'::vector") == 2
            assert await connection.fetchval("SHOW fsync") == "on"
            assert await connection.fetchval("SHOW synchronous_commit") == "on"
            assert await connection.fetchval("SHOW listen_addresses") == ""
        async with connected(services.migration_url) as connection:
            await connection.execute("CREATE TABLE mine (id int); DROP TABLE mine")
            await connection.execute("CREATE ROLE someone NOLOGIN; DROP ROLE someone")
            assert await connection.fetchval("SHOW is_superuser") == "off"
        async with Redis.from_url(services.redis_url) as redis:
            assert await redis.ping()
            assert await redis.config_get("save") == {"save": ""}
    assert told == ["Preparing the database for the first time…"]
    assert took < 2.5


async def test_what_was_written_is_there_after_a_stop_and_a_start(data_dir: Path):
    async with Embedded(data_dir) as services, connected(services.migration_url) as connection:
        await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    began = time.monotonic()
    async with Embedded(data_dir) as services:
        assert time.monotonic() - began < 1
        async with connected(services.migration_url) as connection:
            assert await connection.fetchval("SELECT answer FROM kept") == 42


async def test_a_stop_leaves_no_process(data_dir: Path):
    async with Embedded(data_dir):
        assert {Path(p.cmdline()[0]).name for p in processes_of(data_dir)} == {"postgres", "valkey-server"}
    assert processes_of(data_dir) == []


async def test_a_second_server_is_refused_in_one_sentence_and_the_first_goes_on(data_dir: Path):
    async with Embedded(data_dir) as services:
        with pytest.raises(DataDirectoryInUse) as refusal:
            await Embedded(data_dir).start()
        assert str(refusal.value) == (
            f"The data directory {data_dir} is in use by another tertulia (process {os.getpid()}): "
            "stop that one, or choose another directory with --data-dir."
        )
        async with connected(services.database_url) as connection:
            assert await connection.fetchval("SELECT true")


async def test_nobody_else_may_read_the_secret_and_it_stays_the_same(data_dir: Path):
    async with Embedded(data_dir) as services:
        first = services.secret
    assert len(first) >= 32
    assert stat.S_IMODE((data_dir / "secret").stat().st_mode) == 0o600
    async with Embedded(data_dir) as services:
        assert services.secret == first


async def test_nobody_else_may_enter_the_directory_of_the_sockets(data_dir: Path):
    embedded = Embedded(data_dir)
    async with embedded:
        assert stat.S_IMODE(embedded.sockets.stat().st_mode) == 0o700


async def test_a_data_directory_may_have_a_long_and_a_strange_name(data_dir: Path):
    strange = data_dir / 'it\'s a "strange", very ünusual $name' / ("x" * 120)
    async with Embedded(strange) as services, connected(services.database_url) as connection:
        assert await connection.fetchval("SELECT true")
    assert processes_of(strange) == []


async def test_after_a_kill_the_next_start_adopts_the_database_that_is_still_up(data_dir: Path):
    with killed_server(data_dir):
        survivors = pid_of(data_dir, "postgres"), pid_of(data_dir, "valkey-server")
        async with Embedded(data_dir) as services, connected(services.database_url) as connection:
            assert await connection.fetchval("SELECT true")
            assert pid_of(data_dir, "postgres") == survivors[0]
            assert pid_of(data_dir, "valkey-server") != survivors[1]
    assert [p for p in processes_of(data_dir) if p.status() != psutil.STATUS_ZOMBIE] == []


async def test_after_a_kill_a_database_that_does_not_answer_is_replaced(data_dir: Path):
    with killed_server(data_dir):
        hung = pid_of(data_dir, "postgres")
        os.kill(hung, signal.SIGSTOP)
        async with Embedded(data_dir) as services, connected(services.database_url) as connection:
            assert await connection.fetchval("SELECT true")
            assert pid_of(data_dir, "postgres") != hung


async def test_a_kill_of_everything_at_once_is_recovered_from(data_dir: Path):
    with killed_server(data_dir):
        for process in processes_of(data_dir):
            process.kill()
        async with Embedded(data_dir) as services, connected(services.database_url) as connection:
            assert await connection.fetchval("SELECT true")


async def test_a_stranger_that_has_the_pid_of_a_dead_database_is_no_hindrance(data_dir: Path):
    async with Embedded(data_dir):
        left_behind = (data_dir / "postgres" / "postmaster.pid").read_text()
    user = account.choose(data_dir / "postgres")
    stranger = subprocess.Popen(["sleep", "60"], **user.spawn)  # noqa: ASYNC220  (returns at once)
    try:
        _, _, rest = left_behind.partition("\n")
        (data_dir / "postgres" / "postmaster.pid").write_text(f"{stranger.pid}\n{rest}")
        user.give(data_dir / "postgres" / "postmaster.pid")
        async with Embedded(data_dir) as services, connected(services.database_url) as connection:
            assert await connection.fetchval("SELECT true")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_first_start_that_was_cut_short_is_completed_by_the_next(data_dir: Path):
    embedded = Embedded(data_dir)
    async with embedded:
        connection = await roles.connect(embedded.sockets, "postgres")
        await connection.execute("DROP DATABASE tertulia WITH (FORCE)")
        await connection.execute("DROP ROLE tertulia")
        await connection.close()
    leftover = data_dir / f"postgres.new-{secrets.token_hex(4)}"
    leftover.mkdir()
    async with Embedded(data_dir) as services, connected(services.database_url) as connection:
        assert await connection.fetchval("SELECT '[1]'::vector IS NOT NULL")
    assert not leftover.exists()


@pytest.mark.parametrize("program", ["postgres", "valkey-server"])
async def test_a_service_that_dies_is_started_again(data_dir: Path, program: str):
    async with Embedded(data_dir) as services:

        async def works() -> bool:
            try:
                async with connected(services.database_url), Redis.from_url(services.redis_url) as redis:
                    return bool(await redis.ping())
            except (OSError, asyncpg.PostgresError, ConnectionError):
                return False
            except Exception as error:
                if type(error).__module__.startswith("redis"):
                    return False
                raise

        killed = pid_of(data_dir, program)
        os.kill(killed, signal.SIGKILL)
        await until(works)
        await until(lambda: asyncio.sleep(0, pid_of(data_dir, program) != killed))


async def test_a_data_directory_that_cannot_be_made_is_said_in_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedError) as refusal:
        await Embedded(tmp_path / "file" / "data").start()
    assert str(refusal.value).startswith(f"Cannot use the data directory {tmp_path}/file/data: ")


async def test_a_database_of_another_release_is_refused_in_one_sentence(data_dir: Path):
    (data_dir / "postgres").mkdir(parents=True)
    (data_dir / "postgres" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedError) as refusal:
        await Embedded(data_dir).start()
    assert "was made by PostgreSQL 17" in str(refusal.value)
