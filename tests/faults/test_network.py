"""Lines to the backends that break at the worst moments."""

import asyncio

import pytest

from tertulia.events import relay as relaying
from tertulia.events.log import SCRIPTS, Cursor, EventLog
from tertulia.valkey import Pipeline, connect
from tests.faults.promises import broken, words_of_last_attempt
from tests.faults.proxy import Proxy
from tests.faults.world import World, until


async def test_an_end_whose_acknowledgement_got_lost_is_not_written_again(world: World) -> None:
    """It is committed, and the worker cannot know: it asks again, and learns that this end is written."""
    async with world.talk() as talk, Proxy(world.embedded.sockets / ".s.PGSQL.5432").listening() as line:
        through = f"postgresql://tertulia@127.0.0.1:{line.port}/tertulia?sslmode=disable"
        async with world.worker(database_url=through) as worker:
            await talk.ended(await talk.send("all well so far"))
            line.lose_answer_to = b'"turn_end"'  # the events of the end are written with it
            sent = await talk.send("hello")
            await talk.listener.heard("turn_end", turnId=sent["turn_id"])
            assert line.lose_answer_to == b""
            await talk.send("and then?")
            assert await broken(talk) == []
            assert "late end refused" not in worker.text
        state = await talk.user.state(sent["message_id"])
        assert state["turns"][0]["attempt"] == 1
        assert await world.one("SELECT count(*) FROM messages WHERE role = 'assistant'") == 3
        words_of_last_attempt(talk, sent, state["reply"]["content"])


async def test_lines_to_the_database_that_are_cut_again_and_again_delay_but_lose_nothing(
    world: World,
) -> None:
    async with world.talk() as talk, Proxy(world.embedded.sockets / ".s.PGSQL.5432").listening() as line:
        through = f"postgresql://tertulia@127.0.0.1:{line.port}/tertulia?sslmode=disable"
        async with world.worker(database_url=through):
            for number in range(5):
                sent = await talk.send(f"/slow 0.2 message {number}")
                await talk.listener.heard("text_delta", turnId=sent["turn_id"])
                line.cut()
            assert await broken(talk) == []


async def test_a_line_to_valkey_that_goes_silent_is_given_up_and_the_turn_still_ends_once(
    world: World,
) -> None:
    """Half open: nothing comes and nothing is refused. The words are lost on the way, the end is not."""
    async with (
        world.talk() as talk,
        Proxy(world.embedded.sockets / "valkey.sock").listening() as line,
        world.worker(redis_url=f"redis://127.0.0.1:{line.port}/1"),
    ):
        first = await talk.send("/slow 1 tell me something long")
        await talk.listener.heard("text_delta", turnId=first["turn_id"])
        line.silent = True
        state = await talk.user.answered(first)
        assert state["status"] == "done"
        line.cut()
        line.silent = False
        await talk.ended(first)
        await talk.send("and then?")
        assert await broken(talk) == []


async def test_a_relay_that_nobody_needed_for_long_still_takes_subscriptions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks a silent line for a sign of life; the answer has another form while nothing is subscribed."""
    monkeypatch.setattr(relaying, "_SILENCE", 0.05)
    client = connect(world.settings["redis_url"])
    pipeline = Pipeline(client, *SCRIPTS)
    events = EventLog(pipeline, 100)
    relay = relaying.Relay(client, events)
    heard: list[tuple[Cursor, bytes]] = []

    async def resync() -> bytes:
        raise AssertionError("nothing is missing")

    def take(cursor: Cursor, event: bytes) -> bool:
        heard.append((cursor, event))
        return True

    await relay.start()
    try:
        await asyncio.sleep(0.3)  # several questions and answers
        subscription = await relay.subscribe("log", None, take, resync)
        await events.append("log", [b'{"type":"hello"}'])
        await until(lambda: heard)
        ((place, event),) = heard
        assert (place.offset, event) == (1, b'{"type":"hello"}')
        await subscription.close()
        assert relay.listeners == 0
    finally:
        await relay.stop()
        await pipeline.close()
        await client.aclose()
