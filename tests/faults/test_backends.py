"""PostgreSQL and Valkey that are killed, emptied or frozen while messages come in and turns run."""

import asyncio
import signal
import time

import pytest

from tests.faults.outages import insist, readiness, ready
from tests.faults.promises import broken
from tests.faults.world import Talk, World, frozen, tell, until

pytestmark = pytest.mark.usefixtures("well_again")

SLOW = "/slow 1 tell me something long"


async def test_messages_are_accepted_and_answered_though_valkey_is_killed(world: World) -> None:
    async with world.talk() as talk, world.talk("bob") as other, world.worker():
        first = await talk.send(SLOW)
        seen = await talk.listener.heard("text_delta", turnId=first["turn_id"])
        tell(signal.SIGKILL, world.valkeys())
        for text in ("while it is away", "and again"):
            await talk.send(text)
            await other.send(text)
        await world.valkey_is_back()
        async with talk.again(seen["cursor"]) as late:
            assert await broken(talk, late) == []
            assert late.resynced
        assert await broken(other) == []
        assert talk.listener.resynced
        after = await talk.send("all well now?")
        await talk.listener.heard("turn_end", turnId=after["turn_id"])
        assert await broken(talk) == []
        assert [(await talk.user.state(s["message_id"]))["turns"][0]["attempt"] for s in talk.sent] == [
            1,
            1,
            1,
            1,
        ]


async def test_nothing_accepted_is_lost_when_valkey_is_emptied_again_and_again(world: World) -> None:
    async with world.talk() as talk, world.talk("bob") as other, world.worker():
        first = await talk.send(SLOW)
        seen = await talk.listener.heard("text_delta", turnId=first["turn_id"])
        for number in range(4):
            await world.valkey.flushall()
            await talk.send(f"message {number}")
            await other.send(f"message {number}")
            await world.valkey.flushall()
        async with talk.again(seen["cursor"]) as late:
            assert await broken(talk, late) == []
            assert late.resynced
        assert await broken(other) == []


async def test_a_turn_ends_once_though_the_database_is_killed_in_its_middle(world: World) -> None:
    async with world.talk() as talk, world.talk("bob") as other, world.worker():
        codes: set[str] = set()
        first = await talk.send("/slow 3 tell me something long")
        seen = await talk.listener.heard("text_delta", turnId=first["turn_id"])
        tell(signal.SIGKILL, world.postgres())
        response = await talk.user.post("while it is away", talk.conversation)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "SERVICE_UNAVAILABLE")
        assert not (await readiness(world))["postgresql"]
        await asyncio.gather(insist(talk, "anybody?", "a", codes), insist(other, "hello?", "b", codes))
        assert codes <= {"SERVICE_UNAVAILABLE"}
        async with talk.again(seen["cursor"]) as late:
            assert await broken(talk, late) == []
        assert await broken(other) == []
        assert await world.one("SELECT count(*) FROM messages WHERE role = 'user'") == 3


async def test_an_attempt_that_a_killed_database_forgot_is_not_mistaken_for_the_next(world: World) -> None:
    """What was told of an attempt must be known after a crash, else two attempts go by one number."""
    async with world.worker():
        for _ in range(2):
            async with world.talk() as talk:
                await talk.ended(await talk.send("the model is loaded"))
                doomed = world.postgres()
                sent = await talk.send("/slow 0.5 tell me")
                await talk.listener.heard("message_start", turnId=sent["turn_id"])
                tell(signal.SIGKILL, doomed)
                await world.postgres_is_back()
                assert await broken(talk) == []


async def test_messages_sent_while_the_database_dies_are_accepted_once_per_key(world: World) -> None:
    """Some commits are ambiguous: 503 though the message is in. The key makes a repeat harmless."""
    async with world.talk() as talk, world.talk("bob") as other, world.worker():
        codes: set[str] = set()

        async def chat(who: Talk) -> None:
            for message in range(8):
                await insist(who, f"message {message}", str(message), codes)

        chatting = asyncio.gather(chat(talk), chat(other))
        await until(lambda: len(talk.sent) + len(other.sent) >= 3)
        tell(signal.SIGKILL, world.postgres())
        await chatting
        assert await broken(talk) == []
        assert await broken(other) == []
        assert await world.one("SELECT count(*) FROM messages WHERE role = 'user'") == 16


async def test_a_frozen_valkey_is_noticed_and_holds_nobody_up(world: World) -> None:
    async with world.talk() as talk, world.worker(), talk.user.socket() as newcomer:
        first = await talk.send(SLOW)
        seen = await talk.listener.heard("text_delta", turnId=first["turn_id"])
        async with frozen(world.valkeys()):
            await newcomer.subscribe(talk.session)
            began = time.monotonic()
            second = await talk.send("while it is frozen")
            assert time.monotonic() - began < 2
            began = time.monotonic()
            assert await readiness(world) == {"status": "not ready", "postgresql": True, "redis": False}
            assert time.monotonic() - began < 4
            state = await talk.user.answered(first)
            assert state["status"] == "done"
            assert (await newcomer.until("error"))["code"] == "SERVICE_UNAVAILABLE"
        async with talk.again(seen["cursor"]) as late:
            assert await broken(talk, late) == []
        await until(lambda: ready(world))
        assert (await talk.user.state(second["message_id"]))["status"] == "done"
        await newcomer.subscribe(talk.session)
        await newcomer.until("subscribed")


async def test_a_frozen_database_is_noticed_and_holds_nobody_up_for_ever(world: World) -> None:
    async with world.patched("impatient") as server, world.talk(url=server.url) as talk:
        first = await talk.send("/slow 2 tell me something long")
        await talk.listener.heard("text_delta", turnId=first["turn_id"])
        async with frozen(world.postgres()):
            began = time.monotonic()
            told = await readiness(world)
            assert (told["status"], told["postgresql"]) == ("not ready", False)
            assert time.monotonic() - began < 5
            response = await talk.user.post("while it is frozen", talk.conversation, key="once")
            assert (response.status_code, response.json()["error"]["code"]) == (503, "SERVICE_UNAVAILABLE")
        await until(lambda: ready(world))
        await insist(talk, "while it is frozen", "once", set())
        await talk.send("all well now?")
        assert await broken(talk) == []
        assert await world.one("SELECT count(*) FROM messages WHERE role = 'user'") == 3
