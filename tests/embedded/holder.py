"""Holds the services of a directory up until it is killed: `python -m tests.embedded.holder DIRECTORY`."""

import asyncio
import sys
from pathlib import Path

from tertulia import logs
from tertulia.embedded import Embedded


async def main() -> None:
    async with Embedded(Path(sys.argv[1])):
        print("up", flush=True)
        await asyncio.Event().wait()


logs.configure("info", "json")
asyncio.run(main())
