"""PostgreSQL that is restarted in good order, as for an upgrade, while messages come in and turns run."""

import asyncio
import os
import signal
import time

import asyncpg
import psutil
import pytest

from tests.faults.outages import insist, readiness
from tests.faults.promises import broken, words_of_last_attempt
from tests.faults.world import Talk, World, frozen, halted, until
from tests.support.client import User
from tests.support.sse import begun, saying, stored, types

pytestmark = pytest.mark.usefixtures("well_again")

SLOW = "/slow 1 tell me something long"


async def restart(world: World) -> None:
    """A fast shutdown: connections are told 57P01, and who comes meanwhile 57P03. Then it is up again."""
    log = world.embedded.data_dir / "postgres.log"
    said = log.stat().st_size
    os.kill(world.postgres()[0], signal.SIGINT)
    await until(lambda: b"database system is shut down" in log.read_bytes()[said:])
    await world.postgres_is_back()
    assert b"terminating connection due to administrator command" in log.read_bytes()[said:]


async def chat(talk: Talk, codes: set[str]) -> None:
    """Ten messages within half a second, or as soon as they are accepted."""
    for number in range(10):
        await insist(talk, f"message {number}", str(number), codes)
        await asyncio.sleep(0.05)


async def test_a_restart_while_messages_come_and_are_answered_loses_and_doubles_nothing(world: World) -> None:
    before = len(world.log)
    async with (
        world.talk() as talk,
        world.talk("bob", tenant="other") as other,
        world.server(with_worker=True) as second,
        world.talk("cleo", url=second.url) as elsewhere,
        world.worker() as worker,
    ):
        codes: set[str] = set()
        first = await talk.send(SLOW)
        seen = await talk.listener.heard("text_delta", turnId=first["turn_id"])
        chatting = asyncio.gather(*(chat(each, codes) for each in (talk, other, elsewhere)))
        await until(lambda: len(talk.sent) >= 3)
        await restart(world)
        await chatting
        assert codes == {"SERVICE_UNAVAILABLE"}
        async with talk.again(seen["cursor"]) as late:
            assert await broken(talk, late) == []
        assert [await broken(each) for each in (talk, other, elsewhere)] == [[], [], []]
        assert await world.one("SELECT count(*) FROM messages WHERE role = 'user'") == 31
        assert await world.one("SELECT count(*) FROM turns") == 31
    assert '"level": "error"' not in second.text + worker.text + world.log[before:]


async def test_three_restarts_in_a_row_delay_but_lose_nothing(world: World) -> None:
    async with world.talk() as talk, world.worker():
        codes: set[str] = set()
        for number in range(3):
            await insist(talk, f"/slow 0.5 message {number}", str(number), codes)
            await talk.listener.heard("text_delta", turnId=talk.sent[-1]["turn_id"])
            await restart(world)
        await insist(talk, "all well now?", "last", codes)
        assert await broken(talk) == []
        assert codes <= {"SERVICE_UNAVAILABLE"}
        assert await world.one("SELECT count(*) FROM messages WHERE role = 'user'") == 4


@pytest.mark.parametrize(
    "where", ["worker.tool_called", "worker.tool_returned", "worker.before_commit", "worker.after_commit"]
)
async def test_a_restart_between_two_steps_of_a_turn_leaves_one_reply_and_one_notification(
    world: World, where: str
) -> None:
    async with world.talk() as talk, world.talk("bob") as bob, world.worker(f"{where}=stop") as worker:
        sent = await talk.send('/tool notify_user {"user_id": "bob", "message": "hi"}')
        await talk.send("and then?")
        await halted(worker)
        await restart(world)
        worker.signal(signal.SIGCONT)
        assert await broken(talk) == []
        state = await talk.user.state(sent["message_id"])
        assert state["reply"]["content"] == "The tool notify_user answered: bob has been notified."
        words_of_last_attempt(talk, sent, state["reply"]["content"])
        assert await world.one("SELECT count(*) FROM notifications WHERE to_user_id = 'bob'") == 1
        await bob.send("what did I hear?")
        assert await broken(bob) == []
        assert [frame["type"] for frame in bob.listener.frames].count("notification") == 1


async def test_an_answer_that_streams_over_http_goes_on_through_a_restart_of_the_database(
    world: World,
) -> None:
    async with world.worker(), User(world.url, "ann") as ann:
        conversation = await begun(ann)
        async with saying(ann, conversation, SLOW) as stream:
            await stream.heard("text_delta")
            await restart(world)
            await stream.over(20)
        (text,) = await stored(ann, conversation)
    assert types(stream.events).count("turn_end") == 1
    assert stream.events[-1].inner["status"] == "done"
    assert [event.inner["text"] for event in stream.events if event.type == "message_complete"] == [text]


def checkpointer(world: World) -> int:
    """The process without which PostgreSQL can not shut down in good order."""
    return next(pid for pid in world.postgres() if "checkpointer" in psutil.Process(pid).cmdline()[0])


async def turned_away(world: World) -> bool:
    """Whether PostgreSQL says 57P03 now: it is shutting down."""
    try:
        await world.one("SELECT true")
    except asyncpg.PostgresError as error:
        return isinstance(error, asyncpg.CannotConnectNowError)
    return False


async def test_while_the_database_takes_long_to_shut_down_everybody_is_told_so_at_once(world: World) -> None:
    async with world.talk() as talk, world.worker() as worker:
        first = await talk.send(SLOW)
        await talk.listener.heard("text_delta", turnId=first["turn_id"])
        async with frozen([checkpointer(world)]):
            os.kill(world.postgres()[0], signal.SIGINT)
            await until(lambda: turned_away(world))
            began = time.monotonic()
            for _ in range(10):
                response = await talk.user.post("while it shuts down", talk.conversation, key="once")
                error = response.json()["error"]["code"]
                assert (response.status_code, error) == (503, "SERVICE_UNAVAILABLE")
            assert await readiness(world) == {"status": "not ready", "postgresql": False, "redis": True}
            assert time.monotonic() - began < 2
        await insist(talk, "while it shuts down", "once", set())
        assert await broken(talk) == []
        assert await world.one("SELECT count(*) FROM messages WHERE role = 'user'") == 2
    assert '"level": "error"' not in worker.text
