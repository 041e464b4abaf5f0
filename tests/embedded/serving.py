"""`tertulia serve` with services of its own, and what runs on a data directory."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tertulia.embedded import read_secret
from tests.support.client import User
from tests.support.instance import Instance


def serving(data_dir: Path, **settings: Any) -> Instance:
    """A server on this data directory, as somebody starts it who has set hardly anything."""
    where = ("--port", "0", "--data-dir", str(data_dir))
    return Instance("serve", data_dir.parent, *where, **{"model": "demo:", **settings})


def someone(server: Instance, data_dir: Path, name: str = "ann") -> User:
    """A user whose token this data directory has signed."""
    secret = read_secret(data_dir)
    assert secret
    return User(server.url, name, secret=secret)


def tertulia(*arguments: str | Path) -> None:
    """A command that must succeed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TERTULIA_")}
    command = [sys.executable, "-m", "tertulia", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean)
    assert done.returncode == 0, done.stderr


def processes_of(directory: Path) -> list[psutil.Process]:
    """What has this directory in its command line, but for ourselves."""
    found = psutil.process_iter(["cmdline", "status"])
    return [p for p in found if str(directory) in " ".join(p.info["cmdline"] or []) and p.pid != os.getpid()]


def programs_of(directory: Path) -> set[str]:
    """The names of those programs."""
    return {Path(process.cmdline()[0]).name for process in processes_of(directory)}
