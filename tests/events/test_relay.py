"""The connection that brings events to those who listen."""

import asyncio

import pytest

from tertulia.embedded import Services
from tertulia.events import relay as module
from tertulia.events.log import APPEND, HEAD, Cursor, EventLog
from tertulia.events.relay import Relay
from tertulia.valkey import Pipeline, connect


async def test_events_come_after_a_time_in_which_nobody_listened(
    backends: Services, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_SILENCE", 0.05)
    client = connect(backends.redis_url)
    pipeline = Pipeline(client, APPEND, HEAD)
    events = EventLog(pipeline, keep=100)
    relay = Relay(client, events)
    await relay.start()
    await asyncio.sleep(0.5)
    came: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    async def resync() -> bytes:
        raise AssertionError("nothing is missing")

    def take(cursor: Cursor, event: bytes) -> bool:
        came.put_nowait((cursor.offset, event))
        return True

    async with asyncio.timeout(3):
        await relay.subscribe("test:quiet", None, take, resync)
        await events.append("test:quiet", [b'{"type":"x"}'])
        assert await came.get() == (1, b'{"type":"x"}')
    assert "subscription connection" not in "".join(capfd.readouterr())
    await relay.stop()
    await pipeline.close()
    await client.aclose()
