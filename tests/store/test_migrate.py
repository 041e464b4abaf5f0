"""Migrating: once each, by two at once, and functions again whenever they changed."""

import asyncio
import os
import subprocess
import sys
from importlib.resources import files
from typing import Any

import asyncpg
import pytest

from tertulia.embedded import Services
from tertulia.store import migrate as module
from tertulia.store.migrate import expected, migrate
from tests.store.conftest import Scratch, address
from tests.support.instance import SECRET

SCHEMA = """
    SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
        SELECT concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, -1), a.attnotnull) AS line
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'i')
        UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'api'::regnamespace
        UNION ALL
        SELECT concat_ws(' ', polrelid::regclass, polname, pg_get_expr(polqual, polrelid)) FROM pg_policy
    ) AS lines
"""


async def as_owner(services: Services, database: str) -> "asyncpg.Connection[Any]":
    return await asyncpg.connect(address(services, "tertulia_owner", database))


def tertulia(*arguments: str, **settings: str) -> "subprocess.Popen[str]":
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("TERTULIA_", "GOOGLE_"))
    }
    named = {f"TERTULIA_{name.upper()}": value for name, value in settings.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "tertulia", *arguments],
        env={**clean, **named},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_a_first_migration_applies_all_there_is_and_a_second_nothing(
    backends: Services, scratch: Scratch
) -> None:
    owner = address(backends, "tertulia_owner", await scratch())
    assert await migrate(owner, "tertulia") == expected()
    assert await migrate(owner, "tertulia") == []


async def test_two_processes_that_migrate_at_once_do_it_once(backends: Services, scratch: Scratch) -> None:
    database = await scratch()
    settings = {
        "migration_url": address(backends, "tertulia_owner", database),
        "database_url": address(backends, "tertulia", database),
        "redis_url": backends.redis_url,
        "secret": SECRET,
    }
    running = [tertulia("migrate", **settings) for _ in range(2)]
    said = [await asyncio.to_thread(process.communicate) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert sorted(out.split(":")[0].strip() for out, _ in said) == ["Applied", "The database is up to date."]


async def test_many_that_migrate_at_once_apply_each_part_once(backends: Services, scratch: Scratch) -> None:
    owner = address(backends, "tertulia_owner", await scratch())
    done = await asyncio.gather(*[migrate(owner, "tertulia") for _ in range(6)])
    assert sorted(name for each in done for name in each) == sorted(expected())


async def test_functions_are_made_anew_when_they_changed_and_the_old_ones_are_gone(
    migrated: str, backends: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await as_owner(backends, migrated)
    before = await connection.fetchval(SCHEMA)
    await connection.execute("CREATE FUNCTION api.stale() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
    await connection.execute("UPDATE migrations SET name = 'functions:0' WHERE name LIKE 'functions:%'")
    applied = await migrate(address(backends, "tertulia_owner", migrated), "tertulia")
    assert applied == [expected()[-1]]
    assert await connection.fetchval(SCHEMA) == before
    assert await connection.fetchval("SELECT count(*) FROM migrations WHERE name LIKE 'functions:%'") == 1
    await connection.close()


async def test_a_migration_that_fails_leaves_nothing_of_itself(
    backends: Services, scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await scratch()
    broken = "DROP SCHEMA IF EXISTS api CASCADE; CREATE SCHEMA api; SELECT 1 / 0"
    monkeypatch.setattr(module, "_HAND_OVER", broken)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(address(backends, "tertulia_owner", database), "tertulia")
    connection = await as_owner(backends, database)
    assert await connection.fetchval("SELECT to_regnamespace('api')") is None
    monkeypatch.undo()
    assert await migrate(address(backends, "tertulia_owner", database), "tertulia") == expected()[-1:]
    await connection.close()


async def test_the_role_that_migrates_keeps_no_membership_that_sees_all_rows(
    migrated: str, backends: Services
) -> None:
    connection = await as_owner(backends, migrated)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute("SET ROLE tertulia_system")
    await connection.close()


async def test_migrations_are_numbered_without_gaps() -> None:
    names = sorted(file.name for file in files("tertulia.store").joinpath("migrations").iterdir())
    assert [name[:4] for name in names] == [f"{n:04}" for n in range(len(names))]
