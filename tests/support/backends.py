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
    return {
        "database_url": await fresh_database(services, f"tertulia_{number}"),
        "redis_url": f"{services.redis_url}?db={number}",
    }


async def fresh_database(services: Services, name: str) -> str:
    """The address of a new, migrated database, for the server's role."""
    superuser = of_superuser(services.database_url)
    await _execute(superuser, f"CREATE DATABASE {name} OWNER tertulia_owner TEMPLATE template0")
    await _execute(_named(superuser, name), "CREATE EXTENSION vector")
    await migrate(_named(services.migration_url, name), "tertulia")
    return _named(services.database_url, name)


def _named(url: str, database: str) -> str:
    return url.replace("@/tertulia?", f"@/{database}?")


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
