"""What is done by the clock, for as long as the process lives."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from redis.exceptions import RedisError

from tertulia import logs
from tertulia.core.errors import Unavailable

_log = logs.get("duties")


async def every(seconds: float, duty: Callable[[], Awaitable[object]]) -> NoReturn:
    """Do it again and again; while a service is away, it is tried again next time."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await duty()
        except (Unavailable, RedisError, OSError, TimeoutError) as error:
            _log.warning("duty postponed", duty=duty.__name__, error=type(error).__name__)
        except Exception as error:  # noqa: BLE001  a duty that ended in silence would be missed by everybody
            _log.error("duty broke", duty=duty.__name__, exc_info=error)


@asynccontextmanager
async def doing(*duties: Awaitable[NoReturn]) -> AsyncGenerator[None]:
    """These duties are done for the length of a `with`."""
    tasks = [asyncio.ensure_future(duty) for duty in duties]
    try:
        yield
    finally:
        await end(*tasks)


async def end(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel these until they have ended: Python 3.11's `wait_for` loses a cancellation that comes at a bad moment."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.1)
