"""A real server or worker process, started as an operator would start it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Self

SECRET = "a-secret-for-tests-only-0123456789abcdef"
_LISTENING = re.compile(r"listening on (http://\S+)|\"metrics\": \"(http://[^/\"]+)")


class Instance:
    """`tertulia serve` or `tertulia worker` in a process of its own, its output in a file.

    Settings are given as keyword arguments: `Instance("serve", tmp, model="demo:")`.
    """

    def __init__(
        self, command: str, folder: Path, *arguments: str, failpoints: str = "", **settings: object
    ) -> None:
        self.log = folder / f"{command}-{time.monotonic_ns()}.log"
        self._command = [sys.executable, "-m", "tertulia", command, *arguments]
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("TERTULIA_", "GOOGLE_"))}
        named = {f"TERTULIA_{name.upper()}": str(value) for name, value in settings.items()}
        if "TERTULIA_GOOGLE_API_KEY" in named:
            named["GOOGLE_API_KEY"] = named.pop("TERTULIA_GOOGLE_API_KEY")
        self._environment = {**plain, **named, "TERTULIA_LOG_FORMAT": "json"}
        if failpoints:
            self._environment["TERTULIA_FAILPOINTS"] = failpoints
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.url = ""

    def start(self, patience: float = 30) -> Self:
        """Start, and wait until it listens (a server) or is ready (a worker)."""
        self._output = self.log.open("wb")
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdout=self._output, stderr=self._output
        )
        deadline = time.monotonic() + patience
        while not (self._ready() or self._process.poll() is not None):
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"not ready:\n{self.text}")
            time.sleep(0.02)
        if self._process.poll() is not None:
            raise RuntimeError(f"ended at once:\n{self.text}")
        return self

    def _ready(self) -> bool:
        if found := _LISTENING.search(self.text):
            self.url = found[1] or found[2]
        return bool(found and found[1]) or '"event": "worker ready"' in self.text

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ended(self, patience: float = 20) -> int:
        """Wait for its end; yields the exit status (negative: the signal)."""
        assert self._process is not None
        return self._process.wait(patience)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            self.ended()

    def stop(self, patience: float = 30) -> int:
        """End it as an operator would."""
        if self.alive():
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        return self.ended(patience)

    def stopped(self) -> bool:
        """Whether it has been halted by SIGSTOP."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: Any) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.alive() and self.stopped():
                self.kill()
            self.stop()
        self.kill()
        if self._output:
            self._output.close()
