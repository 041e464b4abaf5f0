"""The embedded services of a server that is up, seen from another process."""

from pathlib import Path

from tertulia.embedded import account, processes, roles
from tertulia.embedded.postgres import database_url
from tertulia.embedded.secret import read_secret
from tertulia.embedded.services import Services
from tertulia.embedded.valkey import redis_url


def sockets(data_dir: Path) -> Path | None:
    """Where the PostgreSQL of this data directory listens, if it runs."""
    directory = data_dir.expanduser().resolve() / "postgres"
    for found in processes.find("postgres", f"-D {directory}", account.choose(directory)):
        return Path(found.command.partition(" -k ")[2].partition(" -p ")[0])
    return None


def running(data_dir: Path) -> Services | None:
    """How to reach the services of this data directory, if they run."""
    directory = sockets(data_dir)
    if directory is None:
        return None
    return Services(
        database_url=database_url(directory, roles.SERVER),
        migration_url=database_url(directory, roles.OWNER),
        redis_url=redis_url(directory),
        secret=read_secret(data_dir.expanduser()) or "",
    )
