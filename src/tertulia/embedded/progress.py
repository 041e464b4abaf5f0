"""Words for the person who waits."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

Progress = Callable[[str], None]


def silent(_line: str) -> None:
    """For those who have nobody to tell."""


@contextmanager
def when_slow(progress: Progress, line: str, seconds: float = 1.0) -> Generator[None]:
    """Say the line if the body takes longer than the seconds."""
    timer = asyncio.get_running_loop().call_later(seconds, progress, line)
    try:
        yield
    finally:
        timer.cancel()
