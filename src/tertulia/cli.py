"""The command line. What a command needs is imported when it runs, so that `--help` is quick."""

import sys
from asyncio import CancelledError
from collections.abc import Coroutine
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from cyclopts import App, CycloptsError, Parameter

if TYPE_CHECKING:
    from tertulia.settings import Settings

app = App(
    name="tertulia",
    help="A self-hosted conversation server for people and AI agents.",
    version=lambda: version("tertulia"),
    help_format="plaintext",
)

Answer = TypeVar("Answer")
DataDir = Annotated[Path | None, Parameter(help="Where the embedded services keep their data.")]
Host = Annotated[str | None, Parameter(help="The address to listen on (127.0.0.1).")]


@app.command
def serve(
    *,
    host: Host = None,
    port: Annotated[int | None, Parameter(help="The port to listen on (8710; 0 takes a free one).")] = None,
    data_dir: DataDir = None,
    agents: Annotated[
        Path | None, Parameter(help="A YAML file with the agents that every tenant has.")
    ] = None,
    no_worker: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Only accept messages; answer them with `tertulia worker` elsewhere.",
        ),
    ] = False,
) -> None:
    """Serve, with PostgreSQL and Valkey of its own unless TERTULIA_DATABASE_URL is set."""
    settings = _settings(host=host, port=port, data_dir=data_dir, agents_file=agents)
    from tertulia import serving

    _run(serving.serve(settings, with_worker=not no_worker))


@app.command
def worker(
    *,
    host: Host = None,
    port: Annotated[
        int | None,
        Parameter(
            help="Also tell how it is doing on this port: /healthz, /readyz, /metrics (0 takes a free one)."
        ),
    ] = None,
) -> None:
    """Answer messages that servers accepted; as many workers as wanted may share the work."""
    settings = _settings(host=host, worker_port=port)
    from tertulia import serving

    _run(serving.work(settings))


@app.command
def migrate(*, data_dir: DataDir = None) -> None:
    """Bring the database to the present schema, as its owner (TERTULIA_MIGRATION_URL)."""
    settings = _settings(data_dir=data_dir)
    from tertulia import serving

    _run(serving.migrate(settings))


@app.command
def token(
    *,
    user: Annotated[str, Parameter(help="Who comes in.")],
    tenant: Annotated[str, Parameter(help="The organisation they belong to.")] = "default",
    role: Annotated[Literal["user", "agent", "admin"], Parameter(help="What they may do.")] = "user",
    ttl: Annotated[
        timedelta, Parameter(help="How long, such as 30d, 12h or 15m.", show_default=lambda _: "30d")
    ] = timedelta(days=30),
    data_dir: DataDir = None,
) -> None:
    """Print a token that lets a user in."""
    settings = _settings(data_dir=data_dir)
    from tertulia import serving

    print(serving.token(settings, user=user, tenant=tenant, role=role, ttl=ttl))


@app.command
def doctor(*, data_dir: DataDir = None) -> None:
    """Say what is configured, what is reachable, and what to do where it is not."""
    settings = _settings(data_dir=data_dir)
    from tertulia import doctor as checks

    if not _run(checks.examine(settings, print)):
        sys.exit(1)


@app.command
def backup(
    file: Annotated[Path, Parameter(help="The file to write.")], /, *, data_dir: DataDir = None
) -> None:
    """Write the embedded database to a file, also while the server runs."""
    settings = _embedded_only(_settings(data_dir=data_dir), "backup")
    from tertulia import embedded, serving

    _run(embedded.backup(settings.data_dir, file, serving.say))


@app.command
def restore(
    file: Annotated[Path, Parameter(help="What `tertulia backup` wrote.")],
    /,
    *,
    force: Annotated[
        bool, Parameter(negative="", show_default=False, help="Replace what the database holds.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Read a backup into the embedded database, while no server runs."""
    settings = _embedded_only(_settings(data_dir=data_dir), "restore")
    from tertulia import embedded, serving
    from tertulia.store.migrate import migrate

    _run(embedded.restore(settings.data_dir, file, migrate, force=force, progress=serving.say))


def main() -> None:
    """Run the command; what a person can mend is said in one sentence, without a traceback."""
    try:
        app(exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _fail(f"{error} See `tertulia --help`.", 2)
    except (KeyboardInterrupt, CancelledError):
        sys.exit(130)
    except OverflowError:
        _fail("A number in the command is larger than anybody can mean. See `tertulia --help`.", 2)
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        _fail(sentence, 1)


def _settings(**given: object) -> "Settings":
    from tertulia import logs
    from tertulia.settings import load

    settings = load(**given)
    logs.configure(settings.log_level, settings.log_format)
    return settings


def _embedded_only(settings: "Settings", command: str) -> "Settings":
    from tertulia.settings import SettingsError

    if settings.database_url:
        program = {"backup": "pg_dump", "restore": "pg_restore"}[command]
        raise SettingsError(f"TERTULIA_DATABASE_URL is set: use {program} with that server.")
    return settings


def _run(work: Coroutine[None, None, Answer]) -> Answer:
    import uvloop

    return uvloop.run(work)


def _sentence(error: Exception) -> str | None:
    """What to tell a person about an error that is no bug of ours; None about one that is."""
    import asyncpg
    from redis.exceptions import RedisError

    from tertulia.core.errors import TertuliaError
    from tertulia.doctor import Ailment
    from tertulia.embedded import EmbeddedError
    from tertulia.settings import SettingsError
    from tertulia.store.guard import NotMigrated, UnsafeRole

    if isinstance(error, SettingsError | EmbeddedError | Ailment | UnsafeRole | NotMigrated | TertuliaError):
        return str(error)
    if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError):
        return f"The database does not let us in: {error}."
    if isinstance(error, RedisError):
        return f"Redis does not let us in: {error}."
    return f"{error}." if isinstance(error, OSError) else None


def _fail(sentence: str, code: int) -> None:
    print("tertulia:", " ".join(sentence.split()), file=sys.stderr)
    sys.exit(code)
