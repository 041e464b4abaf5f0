"""Fails today (left out of tests/): a worker that is told to end just as a message comes."""

import asyncio
import signal
from pathlib import Path
from typing import Any

from tertulia.embedded import Services
from tests.scenarios.conftest import Someone
from tests.support.backends import fresh_database
from tests.support.instance import Instance
from tests.support.valkey import running_valkey


async def test_a_worker_that_is_told_to_end_just_as_a_message_comes_ends_all_the_same(
    backends: Services, settings: dict[str, Any], someone: Someone, folder: Path
) -> None:
    with running_valkey() as valkey:
        own = settings | {
            "database_url": await fresh_database(backends, "tertulia_ending"),
            "redis_url": valkey,
        }
        with Instance("serve", folder, "--no-worker", "--port", "0", **own) as server:
            ann = await someone("ann", at=server)
            for _ in range(6):
                with Instance("worker", folder, **own) as worker:
                    await ann.ask("Hello")
                    await ann.send("And now?")
                    worker.signal(signal.SIGTERM)
                    assert await asyncio.to_thread(worker.ended, 5) == 0
