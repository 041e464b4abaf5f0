"""The Lua scripts of the Redis context: each is one atomic round trip."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tertulia.core.errors import Unavailable

PREFIX = "tertulia:{ctx}:"
"""One hash tag for all keys of the context, since the caps count over all of it."""

KEYS = (f"{PREFIX}deadlines", f"{PREFIX}births", f"{PREFIX}size")

Argument = str | bytes | int
Script = Callable[..., Awaitable[object]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Scripts:
    """The scripts as registered with one client; a server that forgot them is told again."""

    def __init__(self, client: "Redis") -> None:
        prelude = _source("prelude")
        self._scripts = {
            name: cast("Script", client.register_script(prelude + _source(name)))
            for name in ("add", "read", "delete", "sweep")
        }

    async def run(self, name: str, now: datetime, *arguments: Argument) -> object:
        """What the script answers at this time; a server that cannot be reached is Unavailable."""
        try:
            return await self._scripts[name](keys=KEYS, args=(PREFIX, micros(now), *arguments))
        except RedisError as error:
            raise Unavailable from error


def micros(moment: datetime) -> int:
    """The moment in whole microseconds, which a Redis score holds without rounding."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(microseconds: str | bytes) -> datetime:
    return _EPOCH + int(microseconds) * _MICROSECOND


def _source(name: str) -> str:
    return files("tertulia.context").joinpath(f"{name}.lua").read_text("utf-8")
