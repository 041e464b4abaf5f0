"""The other tests would notice: with a guard taken out, the same fault breaks the promise."""

import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tertulia.embedded import Embedded, Services
from tests.faults.promises import broken
from tests.faults.world import World, died, halted, made, until

SLOW = "/slow 0.3 tell me something"


@pytest.fixture
async def unguarded(
    doomed: tuple[Embedded, Services, Path], request: pytest.FixtureRequest
) -> AsyncGenerator[World]:
    """A database of its own, whose functions may be spoilt."""
    name = f"control_{request.node.name.partition('[')[0][-24:]}"
    async with made(*doomed, name, 2) as world:
        await world.valkey.flushdb()
        yield world


async def test_without_the_epoch_a_late_end_is_written(unguarded: World) -> None:
    """Three guards stand before a second reply: lease, the turn's status, an index. All are taken out."""
    await unguarded.redefine("holds_lease", ("RETURN FOUND;", "RETURN true;"))
    await unguarded.redefine("finish_turn", ("AND t.status = 'running'", ""))
    await unguarded.sql("DROP INDEX messages_reply")
    async with unguarded.talk() as talk, unguarded.worker("worker.before_commit=stop") as paused:
        first = await talk.send(SLOW)
        await halted(paused)
        async with unguarded.worker():
            await talk.ended(first)
            paused.signal(signal.SIGCONT)
            await until(lambda: '"event": "turn ended"' in paused.text)
            found = await broken(talk)
    assert any("has 2 replies" in fault for fault in found), found
    assert any("has 2 ends" in fault for fault in found), found


async def test_without_the_epoch_late_words_are_appended(unguarded: World) -> None:
    where = "worker.before_append=stop"
    async with unguarded.talk() as talk, unguarded.patched("unfenced-append", where) as paused:
        first = await talk.send(SLOW)
        await halted(paused)
        async with unguarded.worker():
            await talk.ended(first)
            paused.signal(signal.SIGCONT)

            def late() -> bool:
                return talk.listener.of(first["turn_id"])[-1]["type"] == "text_delta"

            await until(late)
            found = await broken(talk)
    assert any("text_delta of attempt 1 after attempt 2 began" in fault for fault in found), found
    assert any("goes on after its end" in fault for fault in found), found


async def test_without_the_outbox_an_end_is_never_told(unguarded: World) -> None:
    await unguarded.redefine("finish_turn", ("terminal = p_terminal, ended_at", "terminal = NULL, ended_at"))
    async with unguarded.talk() as talk:
        async with unguarded.worker("worker.after_commit=kill") as doomed:
            first = await talk.send("hello")
            await died(doomed)
        async with unguarded.worker():
            second = await talk.send("and then?")
            await talk.ended(second)
            found = await broken(talk, patience=3)  # more than the second after which the sweeper looks
    assert any(f"never heard of the end of {first['turn_id']}" in fault for fault in found), found
