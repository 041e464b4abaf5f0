"""One subscription connection per process, many listeners: each gets every event once, in order, or a `resync`."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, cast

from redis.exceptions import RedisError

from tertulia import logs
from tertulia.core.errors import Unavailable
from tertulia.duties import end
from tertulia.events.log import Cursor, EventLog
from tertulia.valkey import Valkey, raw_connection

_log = logs.get("events.relay")

_SILENCE = 10.0  # seconds after which we ask whether the server is still there
_PATIENCE = 5.0  # seconds for a subscription to begin

Sink = Callable[[Cursor, bytes], bool]
Resync = Callable[[], Awaitable[bytes]]


class Subscription:
    """One listener's place in one log.

    `sink` takes an event with its place and says whether there is room for more; after a False nothing is delivered
    until `resume` is called, and then what was missed is read from the log. `resync` makes the event that says that
    something is gone for good.
    """

    def __init__(self, relay: "Relay", log: str, sink: Sink, resync: Resync) -> None:
        self.log = log
        self.place: Cursor | None = None
        self.placed = asyncio.Event()
        self._relay = relay
        self._sink = sink
        self._resync = resync
        self._reading: asyncio.Task[None] | None = None
        self._behind = False
        self._full = False
        self._closed = False

    def deliver(self, generation: str, first: int, events: list[bytes]) -> None:
        """Take a published batch, if it follows directly on what was delivered; else read the log."""
        place = self.place
        if self._full or self._closed:
            return
        if place and first == 1 and place.generation != generation and not self._reading:
            # The log began anew while we listened, and we have heard all that was said: nothing is missing.
            place = Cursor(generation, 0)
        if self._reading or place is None or place.generation != generation or first > place.offset + 1:
            self.catch_up()
            return
        for offset, event in enumerate(events, first):
            if offset > place.offset and not self._pass_on(Cursor(generation, offset), event):
                return

    def catch_up(self) -> None:
        """Read the log from the present place on, until nothing is left."""
        self._behind = True
        if self._reading is None and not self._closed:
            self._reading = asyncio.create_task(self._read())

    def resume(self) -> None:
        """There is room again."""
        if self._full:
            self._full = False
            self.catch_up()

    async def close(self) -> None:
        self._closed = True
        if self._reading:
            self._reading.cancel()
        await self._relay.forget(self)

    def _pass_on(self, cursor: Cursor, event: bytes) -> bool:
        self.place = cursor
        self._full = not self._sink(cursor, event)
        return not self._full

    async def _read(self) -> None:
        try:
            while self._behind and not self._full and not self._closed:
                self._behind = False
                await self._read_page()
        except (Unavailable, RedisError, OSError, TimeoutError) as error:
            _log.warning("log not readable", log=self.log, error=type(error).__name__)
            await asyncio.sleep(0.5)
            self._behind = True
        finally:
            self._reading = None
        if self._behind and not self._full and not self._closed:
            self.catch_up()

    async def _read_page(self) -> None:
        backlog = await self._relay.events.read(self.log, self.place)
        if backlog.gap:
            event = await self._resync()
            self._pass_on(Cursor(backlog.generation, backlog.tail), event)
            return
        if self.place is None:
            self.place = Cursor(backlog.generation, backlog.tail)
            self.placed.set()
            return
        for offset, event in enumerate(backlog.events, backlog.first):
            if not self._pass_on(Cursor(backlog.generation, offset), event):
                return
        self._behind = self._behind or backlog.first + len(backlog.events) - 1 < backlog.tail


class Relay:
    """Connects the logs that have listeners in this process with these listeners."""

    def __init__(self, client: Valkey, events: EventLog) -> None:
        self.events = events
        self._client = client
        self._listeners: dict[str, set[Subscription]] = {}
        self._confirmed: dict[str, asyncio.Event] = {}
        self._handlers: dict[str, Callable[[bytes], Awaitable[None]]] = {}
        self._heeding: set[asyncio.Future[None]] = set()
        self._connection: Any = None
        self._task: asyncio.Task[None] | None = None

    async def on(self, channel: str, heed: Callable[[bytes], Awaitable[None]]) -> None:
        """Call `heed` with everything that is published on a channel of its own."""
        self._handlers[channel] = heed
        await self._send("SUBSCRIBE", channel)

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task:
            await end(self._task)

    @property
    def listeners(self) -> int:
        return sum(len(each) for each in self._listeners.values())

    async def subscribe(self, log: str, after: Cursor | None, sink: Sink, resync: Resync) -> Subscription:
        """Deliver what came after the cursor (without one: what comes from now on), then everything new."""
        subscription = Subscription(self, log, sink, resync)
        subscription.place = after
        channel = f"{log}:live"
        self._listeners.setdefault(channel, set()).add(subscription)
        confirmed = self._confirmed.get(channel)
        try:
            async with asyncio.timeout(_PATIENCE):
                if confirmed is None:
                    confirmed = self._confirmed[channel] = asyncio.Event()
                    await self._send("SUBSCRIBE", channel)
                await confirmed.wait()
                subscription.catch_up()
                if after is None:
                    await subscription.placed.wait()
        except TimeoutError as error:
            await subscription.close()
            raise Unavailable("Redis is not reachable at the moment. Please try again shortly.") from error
        except BaseException:
            await subscription.close()
            raise
        return subscription

    async def forget(self, subscription: Subscription) -> None:
        channel = f"{subscription.log}:live"
        listeners = self._listeners.get(channel)
        if listeners is None:
            return
        listeners.discard(subscription)
        if not listeners:
            del self._listeners[channel]
            self._confirmed.pop(channel, None)
            await self._send("UNSUBSCRIBE", channel)

    async def _send(self, command: str, *channels: str) -> None:
        """Say it now if we are connected; a reconnection says it for all channels anyway.

        Whoever asks may be cancelled meanwhile, but the connection is everybody's: a word is never cut in its middle.
        """
        if self._connection is not None:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await asyncio.shield(self._connection.send_command(command, *channels))

    async def _run(self) -> None:
        while True:
            try:
                await self._connect()
                await self._listen()
            except (RedisError, OSError, TimeoutError) as error:
                _log.warning("subscription connection lost", error=type(error).__name__)
                await self._disconnect()
                await asyncio.sleep(0.2)
            except Exception as error:  # noqa: BLE001  without this task nobody would hear anything any more
                _log.error("subscription connection broke", exc_info=error)
                await self._disconnect()
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                await self._disconnect()
                raise

    async def _listen(self) -> None:
        asked = False
        while True:
            frame = await self._connection.read_response(timeout=_SILENCE)
            if frame is not None:
                asked = False
                if isinstance(frame, list):  # the PONG of a connection without subscriptions is a bare word
                    self._take(cast(list[Any], frame))
            elif asked:
                raise TimeoutError("no answer to a ping")
            else:
                asked = True
                await self._connection.send_command("PING")

    async def _connect(self) -> None:
        connection = raw_connection(self._client)
        await connection.connect()
        self._connection = connection
        channels = [*self._listeners, *self._handlers]
        for start in range(0, len(channels), 500):
            await connection.send_command("SUBSCRIBE", *channels[start : start + 500])

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await connection.disconnect(nowait=True)

    def _take(self, frame: list[Any]) -> None:
        kind, channel = frame[0], frame[1].decode()
        if kind == b"message" and channel in self._handlers:
            heeding = asyncio.ensure_future(self._handlers[channel](frame[2]))
            self._heeding.add(heeding)
            heeding.add_done_callback(self._heeding.discard)
        elif kind == b"message":
            head, *events = frame[2].split(b"\n")
            generation, first = head.split(b" ")
            for listener in tuple(self._listeners.get(channel, ())):
                listener.deliver(generation.decode(), int(first), events)
        elif kind == b"subscribe":
            if channel not in self._listeners:
                return
            self._confirmed.setdefault(channel, asyncio.Event()).set()
            for listener in self._listeners[channel]:
                listener.catch_up()
