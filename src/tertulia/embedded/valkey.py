"""The embedded Valkey: carries wake-ups and live events, keeps nothing on disk."""

import asyncio
import time
from pathlib import Path
from signal import SIGKILL, SIGTERM

from tertulia.embedded import binaries, processes
from tertulia.embedded.account import Account
from tertulia.embedded.errors import EmbeddedError

_OPTIONS = (
    *("--port", "0", "--unixsocketperm", "700"),
    *("--save", "", "--appendonly", "no"),
    # Event logs and context have a life span, wake-ups have none: where memory runs short, only the former give way.
    *("--maxmemory", "1gb", "--maxmemory-policy", "volatile-ttl"),
    *("--client-output-buffer-limit", "pubsub 64mb 16mb 60"),
    *("--loglevel", "warning", "--set-proc-title", "no", "--daemonize", "no"),
)
_START_SECONDS = 10.0
_SOCKET = "valkey.sock"
_FAREWELL = ((SIGTERM, 3.0), (SIGKILL, 3.0))


class Valkey:
    """A Valkey that listens on a socket in `sockets` only."""

    def __init__(self, data_dir: Path, sockets: Path, account: Account) -> None:
        self._data_dir = data_dir
        self._socket = sockets / _SOCKET
        self._account = account
        self._log = data_dir / "valkey.log"
        self._process: processes.Process | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    async def start(self) -> None:
        """Be up and empty; one that a killed server left running is replaced."""
        for found in processes.find("valkey-server", f"--dir {self._data_dir}", self._account):
            await found.stop(_FAREWELL)
        self._socket.unlink(missing_ok=True)
        where = ("--dir", str(self._data_dir), "--unixsocket", str(self._socket))
        self._process = processes.start([str(binaries.valkey()), *where, *_OPTIONS], self._account, self._log)
        if not await self._answers(self._process):
            await self.stop()
            raise EmbeddedError(f"Valkey does not start: {processes.last_line(self._log)} (see {self._log})")

    async def stop(self) -> None:
        if self._process is not None:
            await self._process.stop(_FAREWELL)

    async def _answers(self, process: processes.Process) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while process.alive and time.monotonic() < deadline:
            if await self._pong():
                return True
            await asyncio.sleep(0.005)
        return False

    async def _pong(self) -> bool:
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            return False
        try:
            writer.write(b"PING\r\n")
            return await asyncio.wait_for(reader.readline(), 1.0) == b"+PONG\r\n"
        except (OSError, TimeoutError):
            return False
        finally:
            writer.close()


def redis_url(sockets: Path) -> str:
    """The address of the embedded Valkey."""
    return f"unix://{sockets / _SOCKET}"
