"""The lock on a data directory: held by a live server, free after a killed one."""

import fcntl
import os
from pathlib import Path

from tertulia.embedded.errors import DataDirectoryInUse


class Lock:
    """An exclusive lock that children do not inherit, so that only our own end can free it."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise `DataDirectoryInUse` at once."""
        file = os.open(self._data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            raise DataDirectoryInUse(
                f"The data directory {self._data_dir} is in use by another tertulia (process {holder}): "
                "stop that one, or choose another directory with --data-dir."
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
