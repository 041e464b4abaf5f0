"""Very many who listen."""

import asyncio
from uuid import UUID, uuid4

from tests.support.client import token

from bench.helper import Helper
from bench.rows import Row, row
from bench.stage import TENANT, Stage
from bench.wire import rss_bytes


async def sockets(stage: Stage) -> list[Row]:
    """(d) Memory of 5,000 sockets, each listening to a session of its own, after each received an event."""
    number = 5000
    names = [uuid4() for _ in range(number)]
    await stage.conversations("crowd", names)
    with stage.server("--no-worker") as server, Helper("bench.load") as load:
        who = token("crowd", TENANT)
        load.ask(do="crowd", url=server.url, token=who, sessions=[f"s-{name}" for name in names[:50]])
        await _tell(stage, names[:50])
        load.ask(do="receive")
        load.ask(do="leave")
        await asyncio.sleep(1)
        before = rss_bytes(server.pid)
        load.ask(do="crowd", url=server.url, token=who, sessions=[f"s-{name}" for name in names])
        await _tell(stage, names)
        load.ask(do="receive")
        grown = (rss_bytes(server.pid) - before) / number
    await stage.sql("DELETE FROM conversations WHERE user_id = 'crowd'")
    return [row("d", "memory of a listening socket", grown / 1000, "kB", 40)]


async def _tell(stage: Stage, names: list[UUID]) -> None:
    """Append an event to each log, as a worker does."""
    from tertulia.events.log import APPEND, EventLog, session_log
    from tertulia.valkey import Pipeline, connect

    client = connect(stage.services.redis_url)
    pipeline = Pipeline(client, APPEND)
    log = EventLog(pipeline, 1000)
    event = b'{"type":"turn_end","conversationId":"x","data":{"status":"done"}}'
    for name in names:
        await log.append(session_log(TENANT, name), [event])
    await pipeline.close()
    await client.aclose()
