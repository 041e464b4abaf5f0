"""The connection to Redis or Valkey, and the pipeline that everything shares on its hot path."""

import asyncio
import hashlib
import math
from collections.abc import Sequence
from typing import Any, Protocol, cast

import hiredis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from tertulia.core.errors import Unavailable

Argument = bytes | str | int
_PENDING_LIMIT = 50_000


class Valkey(Protocol):
    """The part of redis-py's client that we use, with the types it lacks."""

    async def execute_command(self, *arguments: Argument) -> Any: ...
    async def script_load(self, script: str) -> bytes: ...
    async def aclose(self) -> None: ...


def connect(url: str, *, timeout: float = 3.0) -> Valkey:
    """A client whose calls end within `timeout`; it opens no connection before the first call."""
    driver: Any = Redis
    client = driver.from_url(
        url,
        socket_timeout=timeout,
        socket_connect_timeout=2.0,
        retry=Retry(NoBackoff(), 1),
        max_connections=64,
        protocol=2,
    )
    return cast(Valkey, client)


def raw_connection(client: Valkey) -> Any:
    """A connection of one's own, outside the client's pool: for subscriptions and for pipelining by hand."""
    pool: Any = cast(Any, client).connection_pool
    return pool.connection_class(**pool.connection_kwargs)


class Script:
    """A Lua script, called by its hash and loaded again when the server has lost it.

    Before its own arguments it is given the server's `run_id`, which is another after each start.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[str], *arguments: Argument) -> tuple[Argument, ...]:
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)


class Pipeline:
    """One batch of commands is in flight at a time; what comes meanwhile makes the next one.

    So a busy process costs few round trips, and an idle one no delay.
    """

    def __init__(self, client: Valkey, *scripts: Script) -> None:
        self._client = client
        self._scripts = scripts
        self._pending: list[tuple[tuple[Argument, ...], asyncio.Future[Any] | None]] = []
        self._task: asyncio.Task[None] | None = None
        self._connection: Any = None
        self._life = b""

    def post(self, *command: Argument) -> None:
        """Send without waiting, and without ever raising: something else makes up for what gets lost."""
        if self._room():
            self._add(command, None)

    async def call(self, *command: Argument) -> Any:
        """Send and wait for the reply; raises `Unavailable` when there is none."""
        return await self.begin(*command)

    def begin(self, *command: Argument) -> "asyncio.Future[Any]":
        """Send; the future gets the reply or `Unavailable`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._room():
            self._add(command, future)
        else:
            future.set_exception(Unavailable("Redis does not keep up. Please try again shortly."))
        return future

    async def close(self) -> None:
        await self.drain()
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)

    async def drain(self) -> None:
        """Wait until nothing is left to send."""
        while self._task and not self._task.done():
            await asyncio.wait([self._task])

    def _room(self) -> bool:
        return len(self._pending) < _PENDING_LIMIT

    def _add(self, command: tuple[Argument, ...], future: "asyncio.Future[Any] | None") -> None:
        self._pending.append((command, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._pending:
            batch, self._pending = self._pending[:1000], self._pending[1000:]
            try:
                replies = await self._send([command for command, _ in batch])
            except (RedisError, OSError, TimeoutError) as error:
                # What came meanwhile would only wait for the next time-out, and so on.
                batch, self._pending = batch + self._pending, []
                replies = [error] * len(batch)
            for (_, future), reply in zip(batch, replies, strict=True):
                _settle(future, reply)

    async def _send(self, commands: list[tuple[Argument, ...]]) -> list[Any]:
        replies = await self._execute(commands)
        lost = [index for index, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if lost:
            for script in self._scripts:
                await self._client.script_load(script.source)
            for index, reply in zip(lost, await self._execute([commands[i] for i in lost]), strict=True):
                replies[index] = reply
        return replies

    async def _execute(self, commands: list[tuple[Argument, ...]]) -> list[Any]:
        connection = self._connection or raw_connection(self._client)
        try:
            if self._connection is None:
                self._life = await _run_id(connection)
                self._connection = connection
            packed = b"".join(_pack(command, self._life) for command in commands)
            await connection.send_packed_command(packed, check_health=False)
            async with asyncio.timeout(connection.socket_timeout):
                return [await _reply(connection) for _ in commands]
        except BaseException:
            # Replies that are still under way must not be taken for those of the next batch.
            self._connection = None
            await connection.disconnect(nowait=True)
            raise


async def _run_id(connection: Any) -> bytes:
    """Connect, and ask which life of the server this is."""
    await connection.connect()
    await connection.send_packed_command(_pack(("INFO", "server"), b""), check_health=False)
    async with asyncio.timeout(connection.socket_timeout):
        about: bytes = await connection.read_response(disconnect_on_error=False, timeout=math.inf)
    return about.partition(b"run_id:")[2].partition(b"\r")[0]


def _pack(command: tuple[Argument, ...], life: bytes) -> bytes:
    if command[0] == "EVALSHA":
        own = 3 + int(command[2])
        command = (*command[:own], life, *command[own:])
    return cast(Any, hiredis).pack_command(command)


async def _reply(connection: Any) -> Any:
    try:
        return await connection.read_response(disconnect_on_error=False, timeout=math.inf)
    except ResponseError as error:
        return error


def _settle(future: "asyncio.Future[Any] | None", reply: object) -> None:
    if future is None or future.done():
        return
    if isinstance(reply, Exception):
        error = Unavailable("Redis is not reachable at the moment. Please try again shortly.")
        error.__cause__ = reply
        future.set_exception(error)
    else:
        future.set_result(reply)
