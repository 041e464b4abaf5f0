"""A real PostgreSQL and a real Valkey in a data directory, for a server that is given neither."""

from tertulia.embedded.archive import backup, restore
from tertulia.embedded.attached import running
from tertulia.embedded.errors import DataDirectoryInUse, EmbeddedError
from tertulia.embedded.secret import read_secret
from tertulia.embedded.services import Embedded, Services

__all__ = [
    "DataDirectoryInUse",
    "Embedded",
    "EmbeddedError",
    "Services",
    "backup",
    "read_secret",
    "restore",
    "running",
]
