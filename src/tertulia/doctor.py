"""`tertulia doctor`: what is configured, what is reachable, and what helps where it is not."""

import os
from collections.abc import Callable, Coroutine, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from tertulia.agents.models import how_to_install
from tertulia.embedded import EmbeddedError, Services, binaries, running
from tertulia.settings import Settings, settings_file
from tertulia.store.guard import NotMigrated, UnsafeRole, refuse_other_schema, refuse_unsafe_role

Check = tuple[str, Callable[[], Coroutine[None, None, str]]]

_OLDEST_POSTGRES = 15
_OLDEST_REDIS = (6, 2)
_KEYS = {"google_genai": "GOOGLE_API_KEY", "openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
EXPECTED = (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError, RedisError)


class Ailment(Exception):
    """Something is wrong; the message says what, and what to do."""


async def examine(settings: Settings, tell: Callable[[str], None]) -> bool:
    """Tell the result of every check; True when nothing is wrong."""
    well = True
    for name, check in _checks(settings):
        try:
            tell(f"ok     {name}: {await check()}")
        except (Ailment, EmbeddedError, UnsafeRole, NotMigrated) as error:
            well = False
            tell(f"WRONG  {name}: {error}")
    return well


async def require_services(settings: Settings) -> None:
    """Raise an `Ailment` unless the database and the broker that the settings name will do."""
    for name, check in _given(settings):
        try:
            await check()
        except Ailment as error:
            raise Ailment(f"{name}: {error}") from error


def _checks(settings: Settings) -> Iterator[Check]:
    yield "settings", lambda: _settings(settings)
    if settings.database_url:
        yield from _given(settings)
    else:
        yield "data directory", lambda: _data_directory(settings.data_dir.expanduser())
        yield from _embedded(settings.data_dir)
    yield "model", lambda: model_at_hand(settings)


def _given(settings: Settings) -> Iterator[Check]:
    database, redis = settings.database_url, settings.redis_url
    yield (
        "database",
        lambda: _database(database.get_secret_value() if database else "", "TERTULIA_DATABASE_URL"),
    )
    yield "redis", lambda: _redis(redis.get_secret_value() if redis else "", "TERTULIA_REDIS_URL")


def _embedded(data_dir: Path) -> Iterator[Check]:
    found = running(data_dir)
    if isinstance(found, Services):
        yield "database", lambda: _database(found.database_url, "the embedded database")
        yield "redis", lambda: _redis(found.redis_url, "the embedded Valkey")
    else:
        yield "database and redis", _asleep


async def _settings(settings: Settings) -> str:
    names = sorted(name for name in os.environ if name.startswith("TERTULIA_"))
    sources = [str(settings_file()), *names] if _is_file(settings_file()) else names
    return f"{', '.join(sources) or 'all defaults'}; listens on {settings.host}:{settings.port}"


def _is_file(path: Path) -> bool:
    return path.is_file()


async def _asleep() -> str:
    """Whether the embedded services could start; they are not running."""
    binaries.postgres("postgres")
    binaries.valkey()
    return "embedded, not running now; `tertulia serve` starts them"


async def _data_directory(data_dir: Path) -> str:
    there = next(folder for folder in (data_dir, *data_dir.parents) if folder.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise Ailment(f"{there} cannot be written: choose another directory with TERTULIA_DATA_DIR.")
    return str(data_dir)


async def _database(url: str, source: str) -> str:
    try:
        connection = await cast("Any", asyncpg).connect(url, timeout=5)
        try:
            return await _inspect(connection)
        finally:
            await connection.close()
    except EXPECTED as error:
        raise Ailment(
            f"not usable ({reason(error)}): check that {source} is right and the server runs."
        ) from error


async def _inspect(connection: Any) -> str:
    major = int(await connection.fetchval("SHOW server_version_num")) // 10_000
    if major < _OLDEST_POSTGRES:
        raise Ailment(f"PostgreSQL {major} is too old: {_OLDEST_POSTGRES} or newer is needed.")
    vector = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    if not vector:
        raise Ailment("pgvector is missing: run `CREATE EXTENSION vector` in this database as a superuser.")
    await refuse_unsafe_role(connection)
    await refuse_other_schema(connection)
    role = await connection.fetchval("SELECT current_user")
    return f"PostgreSQL {major} with pgvector {vector}, migrated, as the role {role}"


async def _redis(url: str, source: str) -> str:
    if not url:
        raise Ailment("TERTULIA_REDIS_URL must be set when TERTULIA_DATABASE_URL is.")
    try:
        client = cast("Any", Redis).from_url(url, socket_timeout=5, socket_connect_timeout=5)
        try:
            about = await client.info("server")
        finally:
            await client.aclose()
    except EXPECTED as error:
        raise Ailment(
            f"not usable ({reason(error)}): check that {source} is right and the server runs."
        ) from error
    return _broker(about)


def _broker(about: dict[str, object]) -> str:
    """The name and version in the answer to INFO, if they will do."""
    speaks = str(about.get("redis_version", "0"))
    if tuple(int(part) for part in speaks.split(".")[:2]) < _OLDEST_REDIS:
        raise Ailment(f"Redis {speaks} is too old: 6.2 or newer, or Valkey, is needed.")
    valkey = about.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {speaks}"


async def model_at_hand(settings: Settings) -> str:
    """What will answer, or an `Ailment` that says what it lacks."""
    provider, key = settings.model_name.split(":")[0], None
    if provider == "demo":
        return "the built-in demo; set GOOGLE_API_KEY or TERTULIA_MODEL for one that thinks"
    package = "langchain_google_genai" if provider == "google_genai" else _package(provider)
    if find_spec(package) is None:
        missing = package.replace("_", "-")
        raise Ailment(f"{settings.model_name} needs the package {missing}. {how_to_install(missing)}")
    key = _KEYS.get(provider)
    if key and not (os.environ.get(key) or (provider == "google_genai" and settings.google_api_key)):
        raise Ailment(f"{settings.model_name} needs a key: set {key}.")
    return settings.model_name + (f", with {key}" if key else "")


def _package(provider: str) -> str:
    """The package that LangChain wants for this provider."""
    from langchain.chat_models import base

    known: dict[str, tuple[str, ...]] = cast("Any", base)._BUILTIN_PROVIDERS
    if provider not in known:
        raise Ailment(f"there is no provider {provider!r}. There are demo and {', '.join(known)}.")
    return known[provider][0].partition(".")[0]


def reason(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
