"""Processes of ours, whether we started them or a killed predecessor did."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tertulia.embedded.account import Account
from tertulia.embedded.errors import EmbeddedError

ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}  # no secret of ours reaches a child
_LOG_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Process:
    """A running program, known by pid and command line: a reused pid is not mistaken for it."""

    pid: int
    command: str
    child: "subprocess.Popen[bytes] | None" = None

    @property
    def alive(self) -> bool:
        if self.child is not None:
            return self.child.poll() is None
        return _command(self.pid) == self.command

    async def stop(self, steps: Sequence[tuple[signal.Signals, float]]) -> None:
        """Send each signal in turn until the process is gone, giving it the seconds beside the signal."""
        for number, seconds in steps:
            if not self.alive:
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            await self._gone(seconds)

    async def _gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.alive and time.monotonic() < deadline:  # noqa: ASYNC110  (nobody tells us)
            await asyncio.sleep(0.01)


def start(argv: Sequence[str], account: Account, log: Path) -> Process:
    """Start a program as the account, away from our terminal, writing to the log."""
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    with log.open("ab") as output:
        try:
            child = subprocess.Popen(  # noqa: S603  (argv is ours)
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=ENVIRONMENT,
                start_new_session=True,
                **account.spawn,
            )
        except OSError as error:
            raise EmbeddedError(f"Cannot start {argv[0]} as uid {account.uid}: {error.strerror}.") from error
    return Process(child.pid, " ".join(argv), child)


def find(program: str, argument: str, account: Account) -> list[Process]:
    """The account's running processes of this program that have this as their first argument."""
    return [
        Process(pid, command)
        for pid, uid, command in _listing()
        if uid == account.uid and f"/{program} {argument} " in f"{command} "
    ]


def last_line(log: Path) -> str:
    """What a program said last, for the message about its failure."""
    lines = log.read_text("utf-8", "replace").strip().splitlines() if log.exists() else []
    return lines[-1].strip() if lines else "it said nothing"


def _listing() -> Iterator[tuple[int, int, str]]:
    """Pid, uid and command line of every process that can be seen."""
    if sys.platform.startswith("linux"):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                yield int(pid), os.stat(f"/proc/{pid}").st_uid, _command(int(pid))
        return
    ps = ["/bin/ps", "-axww", "-o", "pid=,uid=,command="]
    for line in subprocess.run(ps, capture_output=True, text=True, check=True).stdout.splitlines():  # noqa: S603
        pid, uid, command = line.split(maxsplit=2)
        yield int(pid), int(uid), command.strip()


def _command(pid: int) -> str:
    """The command line of a process; empty when it is gone or a zombie."""
    if not sys.platform.startswith("linux"):
        return next((command for other, _, command in _listing() if other == pid), "")
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return os.fsdecode(b" ".join(words))
