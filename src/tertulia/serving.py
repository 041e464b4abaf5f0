"""From settings to a running server: start what is not given, migrate, say how to get in."""

import asyncio
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from tertulia.core.agents import AgentProfile
from tertulia.embedded import Embedded, read_secret
from tertulia.embedded.progress import when_slow
from tertulia.embedded.roles import SERVER
from tertulia.settings import Settings, SettingsError, default_data_dir


def say(line: str) -> None:
    """Tell the person who waits."""
    print(line, file=sys.stderr, flush=True)


async def serve(settings: Settings, *, with_worker: bool) -> None:
    """Serve until told to stop; services that we started end with us."""
    agents = _agents(settings)
    if with_worker:
        await _require_model(settings)
    listening = _bind(settings.host, settings.port, "TERTULIA_HOST and TERTULIA_PORT (--host, --port)")
    starting = asyncio.current_task()
    _when_told(starting.cancel if starting else _already_ending)
    async with _complete(settings) as completed:
        from tertulia import app

        _when_told(_already_ending)
        await app.serve(
            completed,
            listening,
            agents=agents,
            with_worker=with_worker,
            announce=lambda url: say(welcome(completed, url)),
        )


def _agents(settings: Settings) -> list[AgentProfile] | None:
    """The agents of the server's file, if it has one; its mistakes are told before anything is started."""
    if settings.agents_file is None:
        return None
    from tertulia.agents import file

    return file.read(settings.agents_file)


async def work(settings: Settings) -> None:
    """Answer messages until told to stop."""
    if not settings.database_url:
        raise SettingsError(
            "A worker of its own needs TERTULIA_DATABASE_URL and TERTULIA_REDIS_URL; "
            "`tertulia serve` has one inside."
        )
    from tertulia import app, doctor

    port = settings.worker_port
    listening = (
        None
        if port is None
        else _bind(settings.host, port, "TERTULIA_HOST and TERTULIA_WORKER_PORT (--port)")
    )
    await _require_model(settings)
    await doctor.require_services(settings)
    await app.work(settings, listening)


async def _require_model(settings: Settings) -> None:
    from tertulia import doctor

    try:
        await doctor.model_at_hand(settings)
    except doctor.Ailment as ailment:
        raise SettingsError(f"TERTULIA_MODEL: {ailment}") from ailment


def _bind(host: str, port: int, names: str) -> socket.socket:
    """The address, before anything is started that would be in vain without it; nobody can connect yet."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise SettingsError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another address by {names}."
        ) from error
    return bound


async def migrate(settings: Settings) -> None:
    """Bring the database to the present schema and say what was done."""
    if settings.database_url and not settings.migration_url:
        raise SettingsError(
            "TERTULIA_MIGRATION_URL must be set to the owner of the database, who alone may migrate it."
        )
    if settings.migration_url:
        applied = await _migrate(settings)
    else:
        async with Embedded(settings.data_dir, say) as services:
            applied = await _migrate(
                settings.model_copy(update={"migration_url": SecretStr(services.migration_url)})
            )
    print(f"Applied: {', '.join(applied)}." if applied else "The database is up to date.")


def token(
    settings: Settings, *, user: str, tenant: str, role: Literal["user", "agent", "admin"], ttl: timedelta
) -> str:
    """A signed token; the secret is the one set, else that of the data directory."""
    if ttl <= timedelta():
        raise SettingsError("--ttl must be longer than nothing, such as 30d or 12h.")
    secret = settings.secret or SecretStr(read_secret(settings.data_dir.expanduser()) or "")
    if not secret.get_secret_value():
        raise SettingsError(
            f"There is no secret in {settings.data_dir} yet: "
            "start `tertulia serve` once, or set TERTULIA_SECRET."
        )
    from tertulia.faces import auth

    if not (auth.may_be_name(user) and auth.may_be_name(tenant)):
        raise SettingsError("--user and --tenant have 1 to 200 printable characters.")
    return auth.sign(
        settings.model_copy(update={"secret": secret}),
        user=user,
        tenant=tenant,
        role=role,
        ttl=ttl.total_seconds(),
    )


def welcome(settings: Settings, url: str) -> str:
    """Where the server listens, and a line that talks to it."""
    where = (
        ""
        if settings.data_dir == default_data_dir()
        else f" --data-dir {shlex.quote(str(settings.data_dir))}"
    )
    command = f"{_invocation()} token --user me{where}"
    return f"""
Tertulia is listening on {url}

  A token for you:  TOKEN=$({command})
  Say something:    curl {url}/api/messages -H "Authorization: Bearer $TOKEN" \\
                      -d '{{"content": "Hello!", "session_id": "first"}}'
  Read the answer:  curl {url}/api/messages/MESSAGE_ID -H "Authorization: Bearer $TOKEN"
  What else it can: {url}/docs
"""


def _invocation() -> str:
    """How to call us again from this shell."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m tertulia"
    if shutil.which(program.name) == str(program):
        return program.name
    return shlex.quote(
        str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program)
    )


def _when_told(act: Callable[[], object]) -> None:
    """Do this when told to stop, be it by Ctrl-C, by a service manager or by a terminal that is closed."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, act)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # else `nohup` asked us to stay
        loop.add_signal_handler(signal.SIGHUP, signal.raise_signal, signal.SIGTERM)


def _already_ending() -> None:
    """The server hears the signals itself, and raises them again when it has ended: we are on our way."""


@asynccontextmanager
async def _complete(settings: Settings) -> AsyncGenerator[Settings]:
    """The settings with a database that is up and migrated, a broker and a secret."""
    if settings.database_url:
        from tertulia import doctor

        if settings.migration_url:
            await _migrate(settings)
        await doctor.require_services(settings)
        yield settings
        return
    if settings.redis_url or settings.migration_url:
        raise SettingsError(
            "TERTULIA_DATABASE_URL must be set when TERTULIA_REDIS_URL or TERTULIA_MIGRATION_URL is."
        )
    importing = asyncio.create_task(asyncio.to_thread(import_module, "tertulia.app"))
    async with Embedded(settings.data_dir, say) as services:
        urls = {
            name: SecretStr(getattr(services, name))
            for name in ("database_url", "migration_url", "redis_url")
        }
        secret = settings.secret or SecretStr(services.secret)
        completed = settings.model_copy(update={**urls, "secret": secret})
        await _migrate(completed)
        await importing
        yield completed


async def _migrate(settings: Settings) -> list[str]:
    from tertulia.doctor import EXPECTED, reason
    from tertulia.store import migrate as migrations

    url, role = settings.migration_url, _server_role(settings)
    with when_slow(say, "Bringing the database up to date…"):
        try:
            return await migrations.migrate(url.get_secret_value() if url else "", role)
        except EXPECTED as error:
            raise SettingsError(f"Migrating with TERTULIA_MIGRATION_URL failed: {reason(error)}.") from error


def _server_role(settings: Settings) -> str:
    url = settings.database_url
    return unquote(urlsplit(url.get_secret_value()).username or SERVER) if url else SERVER
