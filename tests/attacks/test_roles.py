"""What the server refuses to start with: it says so in one sentence and ends."""

from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tertulia.embedded import Services
from tests.support.instance import Instance


def as_role(services: Services, role: str, database: str = "tertulia") -> str:
    return f"postgresql://{role}@/{database}?" + services.database_url.partition("?")[2]


def refusal(command: str, folder: Path, settings: dict[str, Any]) -> str:
    """What a server or worker says that does not start."""
    arguments = ["--port", "0"] if command == "serve" else []
    instance = Instance(command, folder, *arguments, **settings)
    with pytest.raises(RuntimeError, match="ended at once"):
        instance.start()
    assert instance.ended() == 1
    said = [line for line in instance.text.splitlines() if line and not line.startswith("{")]
    assert len(said) == 1, instance.text
    assert "Traceback" not in instance.text
    return said[0]


@pytest.mark.parametrize("command", ["serve", "worker"])
@pytest.mark.parametrize("role", ["postgres", "tertulia_owner"])
async def test_neither_superuser_nor_owner_may_serve(
    command: str, role: str, backends: Services, settings: dict[str, Any], folder: Path
) -> None:
    said = refusal(command, folder, settings | {"database_url": as_role(backends, role)})
    assert f"The database role '{role}' could see every tenant's data" in said
    assert "Put a plain login role into TERTULIA_DATABASE_URL" in said


@pytest.mark.parametrize("command", ["serve", "worker"])
async def test_a_database_that_is_not_migrated_is_not_served(
    command: str, backends: Services, settings: dict[str, Any], folder: Path
) -> None:
    connection = await asyncpg.connect(as_role(backends, "postgres"))
    name = f"bare_{command}"
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    inside = await asyncpg.connect(as_role(backends, "postgres", name))
    await inside.execute("CREATE EXTENSION vector")
    await inside.close()
    said = refusal(command, folder, settings | {"database_url": as_role(backends, "tertulia", name)})
    assert "The database is not migrated: " in said
    assert "Run `tertulia migrate`" in said
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


async def test_a_password_in_a_url_is_not_said_when_it_is_wrong(
    settings: dict[str, Any], folder: Path
) -> None:
    url = "postgresql://tertulia:the-password@127.0.0.1:1/tertulia"
    assert "the-password" not in refusal("serve", folder, settings | {"database_url": url})
    url = "redis://:the-password@127.0.0.1:1/0"
    assert "the-password" not in refusal("serve", folder, settings | {"redis_url": url})
