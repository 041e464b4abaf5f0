"""Wake-ups that come twice, in the wrong order, or as rubbish."""

from typing import Any

from tertulia.queue.publisher import GROUP, STREAM
from tests.faults.promises import broken
from tests.faults.world import World, until

RUBBISH: list[dict[Any, Any]] = [
    {"nothing": "here"},
    {"tenant_id": "acme", "user_id": "ann", "conversation_id": "not-a-uuid", "message_id": "neither"},
    {b"tenant_id": b"\xff\xfe", b"user_id": b"ann", b"conversation_id": b"\xff", b"message_id": b""},
    {b"tenant_id": b"a\x00b", b"user_id": b"ann", b"conversation_id": b"6" * 32, b"message_id": b"7" * 32},
    {"tenant_id": "", "user_id": "", "conversation_id": "6" * 32, "message_id": "7" * 32},
    {"tenant_id": "acme", "user_id": "ann", "conversation_id": "6" * 32, "message_id": "7" * 32},
    {"tenant_id": "x" * 100_000, "user_id": "ann", "conversation_id": "6" * 32, "message_id": "7" * 32},
]


def _wakeup(conversation: str, message: str, user: str = "ann") -> dict[Any, Any]:
    return {"tenant_id": "acme", "user_id": user, "conversation_id": conversation, "message_id": message}


async def _all_seen_to(world: World) -> None:
    """The stream is empty: every entry has been acknowledged and deleted."""

    async def empty() -> bool:
        pending = await world.valkey.xpending(STREAM, GROUP)
        return not pending["pending"] and not await world.valkey.xlen(STREAM)

    await until(empty)


async def test_wakeups_that_come_twice_or_in_the_wrong_order_change_nothing(world: World) -> None:
    async with world.talk() as talk, world.worker() as one, world.worker() as two:
        for number in range(5):
            sent = await talk.send(f"message {number}")
            for _ in range(3):
                await world.valkey.xadd(STREAM, _wakeup(talk.conversation, sent["message_id"]))
        for sent in reversed(talk.sent):
            await world.valkey.xadd(STREAM, _wakeup(talk.conversation, sent["message_id"]))
        assert await broken(talk) == []
        for sent in talk.sent:
            await world.valkey.xadd(STREAM, _wakeup(talk.conversation, sent["message_id"]))
        await _all_seen_to(world)
        assert await broken(talk) == []
        assert {(await talk.user.state(s["message_id"]))["turns"][0]["attempt"] for s in talk.sent} == {1}
        assert not [line for worker in (one, two) for line in worker.text.splitlines() if '"error"' in line]


async def test_rubbish_in_the_stream_is_put_away_and_holds_nobody_up(world: World) -> None:
    """Its own wake-up is lost, and one comes in somebody else's name: that one shows and changes nothing."""
    async with world.talk() as talk:
        sent = await talk.send("hello")
        await world.valkey.delete(STREAM)
        for entry in (*RUBBISH, _wakeup(talk.conversation, sent["message_id"], user="eve")):
            await world.valkey.xadd(STREAM, entry)
        async with world.worker() as worker:
            assert await broken(talk) == []
            await _all_seen_to(world)
        assert await world.one("SELECT attempt FROM turns") == 1
        assert not [line for line in worker.text.splitlines() if '"level": "error"' in line]
