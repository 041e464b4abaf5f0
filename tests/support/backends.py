"""A database and a Valkey database for one server alone, in the services that all tests share."""

import itertools
from typing import Any

import asyncpg

from tertulia.embedded import Services
from tertulia.store.migrate import migrate


def of_superuser(url: str) -> str:
    """The same database for the one role that row level security does not bind."""
    return "postgresql://postgres@" + url.partition("@")[2]


_numbers = itertools.count(1)  # Valkey has sixteen databases; the first is everybody's


async def private(services: Services) -> dict[str, Any]:
    """Settings for a fresh, migrated database and a Valkey database that nobody uses yet."""
    number = next(_numbers)
    name = f"tertulia_{number}"
    superuser = of_superuser(services.database_url)
    await _execute(superuser, f"CREATE DATABASE {name} OWNER tertulia_owner TEMPLATE template0")
    await _execute(_named(superuser, name), "CREATE EXTENSION vector")
    await migrate(_named(services.migration_url, name), "tertulia")
    return {
        "database_url": _named(services.database_url, name),
        "redis_url": f"{services.redis_url}?db={number}",
    }


def _named(url: str, database: str) -> str:
    return url.replace("@/tertulia?", f"@/{database}?")


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
