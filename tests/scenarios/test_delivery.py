"""What reaches a client over `/ws`: who may listen, what is pushed, how one goes on where one left off."""

import asyncio
import contextlib
import json
import socket as sockets
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from redis.asyncio import Redis
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.scenarios.conftest import Alone, Someone, word
from tests.support.client import LEEWAY, Socket, User, token
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import text
from tests.support.instance import Instance


def address(server: Instance) -> str:
    return server.url.replace("http", "ws", 1) + "/ws"


@asynccontextmanager
async def stranger(server: Instance, **options: Any) -> AsyncGenerator[Socket]:
    """A socket of which nobody has said whose it is."""
    async with connect(address(server), proxy=None, **options) as connection:
        yield Socket(connection)


async def closed(socket: Socket, patience: float = 5) -> tuple[int, str]:
    """The code and the reason with which the server closes the socket."""
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(patience):
            while True:
                await socket.next(patience)
    return socket.connection.close_code or 0, socket.connection.close_reason or ""


def types(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["type"] for frame in frames]


@pytest.mark.scenario("002", "User receives response via WebSocket")
async def test_the_answer_is_pushed_to_the_user_who_never_connected_before(someone: Someone) -> None:
    new = await someone("new")
    async with new.socket() as socket:
        sent = await new.send('[[text {"said": "Here I am"}]]', session := word("s"))
        pushed = await socket.until("message")
    assert (pushed["content"], pushed["session_id"], pushed["actions_taken"]) == ("Here I am", session, [])
    assert (pushed["conversation_id"], pushed["turn_id"]) == (sent["conversation_id"], sent["turn_id"])
    assert types(socket.seen) == ["connected", "message"]


@pytest.mark.scenario("002", "User receives response via WebSocket")
async def test_who_watches_a_session_sees_its_answer_grow(ann: User) -> None:
    first = await ann.send("Hello", session := word("s"))
    await ann.answered(first)
    async with ann.socket() as socket:
        await socket.subscribe(await ann.session_id(first))
        await socket.until("subscribed")
        sent = await ann.send('[[text {"said": "one two three", "chunks": 3, "delay": 0.1}]]', session)
        await socket.until("turn_end")
    events = [frame for frame in socket.seen if frame.get("turnId") == sent["turn_id"]]
    deltas = [event["data"]["text"] for event in events if event["type"] == "text_delta"]
    assert [kind for kind in types(events) if kind != "text_delta"] == [
        "conversation:user_message",
        "message_start",
        "message_complete",
        "turn_end",
    ]
    assert len(deltas) == 3
    assert "".join(deltas) == "one two three"
    assert events[-2]["data"]["text"] == "one two three"
    assert events[-1]["data"]["status"] == "done"
    assert {event["attempt"] for event in events[1:]} == {1}
    assert {event["conversationId"] for event in events} == {sent["conversation_id"]}


async def test_every_socket_of_a_user_gets_the_answer_and_nobody_elses_does(ann: User, bob: User) -> None:
    async with ann.socket() as one, ann.socket() as two, bob.socket() as other:
        await ann.send('[[text {"said": "Twice"}]]')
        assert (await one.until("message"))["content"] == "Twice"
        assert (await two.until("message"))["content"] == "Twice"
        assert await other.quiet() == []


async def test_a_message_can_be_sent_over_the_socket_itself(ann: User) -> None:
    async with ann.socket() as socket:
        await socket.say(
            type="message", content='[[text {"said": "By wire"}]]', session_id=(session := word("s"))
        )
        accepted = await socket.until("accepted")
        assert (accepted["status"], accepted["session_id"]) == ("queued", session)
        assert (await socket.until("message"))["content"] == "By wire"
        await socket.say(type="message", content=" ", session_id=session)
        refused = await socket.until("error")
        assert (refused["code"], refused["session_id"]) == ("MESSAGE_CONTENT_REQUIRED", session)
    assert (await ann.state(accepted["message_id"]))["status"] == "done"


async def test_a_frame_that_is_none_is_refused_and_the_socket_goes_on(ann: User) -> None:
    async with ann.socket() as socket:
        for frame in ("nonsense", "{}", '{"type": "dance"}', '{"type": "message"}', "[" * 10_000):
            await socket.connection.send(frame)
            assert (await socket.until("error"))["code"] == "INVALID_FRAME"
        await socket.say(type="ping")
        assert (await socket.next())["type"] == "pong"


@pytest.mark.scenario("002", "WebSocket connection authenticated")
async def test_a_token_is_taken_from_the_header_the_subprotocol_or_the_first_frame(server: Instance) -> None:
    valid = token("ann")
    async with stranger(server, additional_headers={"Authorization": f"Bearer {valid}"}) as by_header:
        assert (await by_header.next())["type"] == "connected"
    async with stranger(server, subprotocols=["bearer", valid]) as by_protocol:
        assert (await by_protocol.next())["type"] == "connected"
        assert by_protocol.connection.subprotocol == "bearer"
    async with stranger(server) as by_frame:
        await by_frame.say(type="auth", token=valid)
        welcome = await by_frame.next()
    assert (welcome["type"], welcome["user_id"], welcome["tenant_id"]) == ("connected", "ann", "acme")


@pytest.mark.scenario("002", "WebSocket connection authenticated")
async def test_a_token_in_the_first_subscribe_lets_one_listen(server: Instance, ann: User) -> None:
    sent = await ann.send("Hello", session := word("s"))
    await ann.answered(sent)
    async with stranger(server) as socket:
        await socket.say(type="subscribe", sessionId=await ann.session_id(sent), token=token("ann"))
        assert (await socket.next())["type"] == "connected"
        assert (await socket.next())["type"] == "subscribed"
        again = await ann.send("And again", session)
        assert (await socket.until("turn_end"))["turnId"] == again["turn_id"]


@pytest.mark.scenario("002", "WebSocket connection authenticated")
@pytest.mark.parametrize(
    "bad",
    [
        "nonsense",
        token("ann", secret="another-secret-that-is-long-enough-0123456789"),
        token("ann", ttl=-60),
        token("ann", exp=None),
        token("ann", tenant_id=None),
        token("", user_id=None),
    ],
    ids=["nonsense", "other secret", "expired", "no expiry", "no tenant", "no user"],
)
async def test_a_bad_token_closes_the_socket_with_4001(server: Instance, bad: str) -> None:
    async with stranger(server, additional_headers={"Authorization": f"Bearer {bad}"}) as by_header:
        assert (await closed(by_header))[0] == 4001
    async with stranger(server, subprotocols=["bearer", bad]) as by_protocol:
        assert (await closed(by_protocol))[0] == 4001
    async with stranger(server) as by_frame:
        await by_frame.say(type="auth", token=bad)
        assert (await closed(by_frame))[0] == 4001
        assert types(by_frame.seen) == ["error"]


@pytest.mark.scenario("002", "WebSocket connection authenticated")
async def test_who_says_something_else_first_is_sent_away(server: Instance, ann: User) -> None:
    sent = await ann.send("Hello")
    session_id = await ann.session_id(sent)
    for first in ({"type": "message", "content": "hi"}, {"type": "subscribe", "sessionId": session_id}):
        async with stranger(server) as socket:
            await socket.say(**first)
            assert (await closed(socket))[0] == 4001
            assert types(socket.seen) == ["error"]


@pytest.mark.scenario("002", "WebSocket connection authenticated")
async def test_who_is_silent_for_ten_seconds_or_whose_token_ends_is_sent_away(server: Instance) -> None:
    short = {"Authorization": f"Bearer {token('ann', ttl=4 - LEEWAY)}"}
    async with stranger(server) as silent, stranger(server, additional_headers=short) as ending:
        began = time.monotonic()
        assert await closed(ending, 8) == (4001, "The token has expired.")
        assert types(ending.seen) == ["connected"]
        assert await closed(silent, 15) == (4001, "No token came in time.")
        assert silent.seen == []
        assert 9 < time.monotonic() - began < 12


async def test_a_newer_token_keeps_the_socket_and_another_users_closes_it(server: Instance) -> None:
    short = {"Authorization": f"Bearer {token('ann', ttl=4 - LEEWAY)}"}
    async with stranger(server, additional_headers=short) as socket:
        await socket.until("connected")
        await socket.say(type="auth", token=token("ann"))
        assert await socket.quiet(4.5) == []
        await socket.say(type="ping")
        await socket.until("pong")
        await socket.say(type="auth", token=token("bob"))
        assert await closed(socket) == (4001, "This socket belongs to another user.")


async def test_a_page_of_another_origin_may_not_connect(server: Instance) -> None:
    headers = {"Authorization": f"Bearer {token('ann')}"}
    with pytest.raises(InvalidStatus) as refused:
        async with stranger(server, additional_headers=headers, origin="https://evil.example"):
            pass
    assert refused.value.response.status_code == 403
    async with stranger(server, additional_headers=headers, origin=server.url) as socket:
        await socket.until("connected")


async def test_nobody_listens_to_the_session_of_another(ann: User, bob: User) -> None:
    sent = await ann.send("Private", session := word("s"))
    session_id = await ann.session_id(sent)
    async with bob.socket() as socket, User(ann.url, "ann", "globex") as namesake, namesake.socket() as other:
        for each in (socket, other):
            await each.subscribe(session_id)
            assert (await each.until("error"))["code"] == "CONVERSATION_NOT_FOUND"
        await ann.ask("Still private", session)
        assert await socket.quiet() == []
        assert await other.quiet(0.1) == []


async def test_whoever_comes_back_with_a_cursor_gets_exactly_what_came_after(ann: User) -> None:
    first = await ann.send("Hello", session := word("s"))
    await ann.answered(first)
    session_id = await ann.session_id(first)
    async with ann.socket() as staying:
        await staying.subscribe(session_id)
        await staying.until("subscribed")
        async with ann.socket() as leaving:
            await leaving.subscribe(session_id)
            await leaving.until("subscribed")
            sent = await ann.send('[[text {"said": "abcdef", "chunks": 6, "delay": 0.15}]]', session)
            last = await leaving.until("text_delta")
        await ann.answered(sent)
        await ann.ask("Meanwhile", session)
        while [frame["type"] for frame in staying.seen].count("turn_end") < 2:
            await staying.next()
        events = [frame for frame in staying.seen if "turnId" in frame]
        missed = events[[event["cursor"] for event in events].index(last["cursor"]) + 1 :]
        async with ann.socket() as back:
            await back.subscribe(session_id, after=last["cursor"])
            while len([frame for frame in back.seen if "turnId" in frame]) < len(missed):
                await back.next()
            later = await ann.send("Now", session)
            assert (await back.until("turn_end"))["turnId"] == later["turn_id"]
    assert len(missed) > 8
    returned = [frame for frame in back.seen if "turnId" in frame]
    assert returned[: len(missed)] == missed
    assert {event["turnId"] for event in returned[len(missed) :]} == {later["turn_id"]}
    offsets = [int(event["cursor"].split(".")[1]) for event in returned]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


async def test_a_push_that_came_while_one_was_away_is_delivered_after_the_cursor(someone: Someone) -> None:
    ann = await someone("ann")
    await ann.ask('[[text {"said": "first"}]]')
    async with ann.socket() as socket:
        cursor = socket.seen[0]["cursor"]
    await ann.ask('[[text {"said": "second"}]]')
    await ann.ask('[[text {"said": "third"}]]')
    async with ann.socket() as socket:
        await socket.say(type="subscribe", topic="user", afterCursor=cursor)
        pushed = [await socket.until("message") for _ in range(2)]
        assert await socket.quiet(0.3) == []
    assert [each["content"] for each in pushed] == ["second", "third"]


async def test_the_cursor_of_one_to_whom_nothing_was_ever_pushed_misses_nothing(someone: Someone) -> None:
    new = await someone("new")
    async with new.socket() as socket:
        cursor = socket.seen[0]["cursor"]
    await new.ask('[[text {"said": "first of all"}]]')
    async with new.socket() as socket:
        await socket.say(type="subscribe", topic="user", afterCursor=cursor)
        assert (await socket.until("message"))["content"] == "first of all"
    assert "resync" not in types(socket.seen)


@pytest.mark.parametrize("wrong", ["nonsense", "a.b", "deadbeef.3", "future"])
async def test_a_cursor_that_is_not_of_this_log_is_answered_with_a_resync(ann: User, wrong: str) -> None:
    sent = await ann.send('[[text {"said": "Known"}]]', session := word("s"))
    await ann.answered(sent)
    session_id = await ann.session_id(sent)
    async with ann.socket() as socket:
        await socket.subscribe(session_id)
        cursor = (await socket.until("subscribed"))["cursor"]
        generation, offset = cursor.split(".")
        await socket.subscribe(
            session_id, f"{generation}.{int(offset) + 1000}" if wrong == "future" else wrong
        )
        resync = await socket.until("resync")
        assert resync["cursor"] == cursor
        assert resync["conversationId"] == sent["conversation_id"]
        assert [(turn["id"], turn["status"]) for turn in resync["data"]["turns"]] == [
            (sent["turn_id"], "done")
        ]
        later = await ann.send("Goes on", session)
        assert (await socket.until("turn_end"))["turnId"] == later["turn_id"]


async def test_a_log_that_was_flushed_away_is_answered_with_a_resync(
    strict: Instance, strict_settings: dict[str, Any], someone: Someone
) -> None:
    ann = await someone("ann", at=strict)
    sent = await ann.send("Hello", session := word("s"))
    await ann.answered(sent)
    async with ann.socket() as socket:
        await socket.subscribe(await ann.session_id(sent))
        cursor = (await socket.until("subscribed"))["cursor"]
    async with Redis.from_url(strict_settings["redis_url"]) as valkey:
        await valkey.flushdb()
    assert (await ann.ask("Still there?", session))["status"] == "done"
    async with ann.socket() as socket:
        await socket.subscribe(await ann.session_id(sent), cursor)
        resync = await socket.until("resync")
    assert resync["cursor"].split(".")[0] != cursor.split(".")[0]
    assert [turn["status"] for turn in resync["data"]["turns"]] == ["done", "done"]


async def test_a_user_has_only_so_many_sockets(server: Instance, someone: Someone) -> None:
    ann = await someone("ann")
    async with _sockets(ann, 20):
        headers = {"Authorization": f"Bearer {ann.token}"}
        async with stranger(server, additional_headers=headers) as one_more:
            assert await closed(one_more) == (4008, "You have too many connections open. Close one first.")
    async with ann.socket() as again:
        assert again.seen[0]["type"] == "connected"


@asynccontextmanager
async def _sockets(user: User, number: int) -> AsyncGenerator[None]:
    if number == 0:
        yield
        return
    async with user.socket(), _sockets(user, number - 1):
        yield


PARAGRAPH = 100_000


@pytest.fixture(scope="module")
def verbose() -> Generator[ScriptedGemini]:
    """A model that answers with 100,000 characters."""
    with ScriptedGemini(text("x" * PARAGRAPH, chunks=10)) as gemini:
        yield gemini


@pytest.fixture(scope="module")
async def narrow(alone: Alone, verbose: ScriptedGemini, folder: Path) -> AsyncGenerator[Instance]:
    """A server that buffers little and remembers little, with its worker in another process."""
    settings = await alone(
        model_base_url=verbose.url, socket_buffer=10, event_log_length=100, socket_send_timeout=60
    )
    with (
        Instance("worker", folder, **settings),
        Instance("serve", folder, "--no-worker", "--port", "0", **settings) as running,
    ):
        yield running


async def test_a_reader_who_falls_behind_is_told_so_and_costs_the_server_no_memory(narrow: Instance) -> None:
    async with User(narrow.url, "ann") as ann, User(narrow.url, "bob") as bob:
        sent = await ann.send("Begin", session := word("s"))
        await ann.answered(sent)
        session_id = await ann.session_id(sent)
        async with _slow(ann) as slow:
            await slow.subscribe(session_id)
            await slow.until("subscribed")
            slow.connection.transport.pause_reading()
            before = psutil.Process(narrow.pid).memory_info().rss
            for _ in range(60):  # 60 answers of 100 kB, each of them sent as deltas and as a whole
                last = await ann.ask("More", session)
            grown = psutil.Process(narrow.pid).memory_info().rss - before
            assert grown < 6_000_000
            assert (await bob.ask("Are you there?"))["status"] == "done"
            slow.connection.transport.resume_reading()
            resync = await slow.until("resync", 30, conversationId=sent["conversation_id"])
            later = await ann.send("Finally", session)
            await slow.until("turn_end", 30, turnId=later["turn_id"])
    delivered = [frame for frame in slow.seen if frame.get("turnId")]
    assert last["status"] == "done"
    assert resync["data"]["turns"][-1]["id"] == last["turns"][0]["turn_id"]
    assert len(delivered) < 60 * 10


@asynccontextmanager
async def _slow(user: User) -> AsyncGenerator[Socket]:
    """A socket with room for little in the network between."""
    host, port = user.url.removeprefix("http://").split(":")
    raw = sockets.socket()
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 32_768)
    raw.connect((host, int(port)))
    raw.setblocking(False)
    async with user.socket(sock=raw, max_queue=4, max_size=None) as socket:
        yield socket


async def test_events_are_the_same_json_for_every_listener(ann: User) -> None:
    sent = await ann.send("Hello", session := word("s"))
    await ann.answered(sent)
    session_id = await ann.session_id(sent)
    async with ann.socket() as one, ann.socket() as two:
        for socket in (one, two):
            await socket.subscribe(session_id)
            await socket.until("subscribed")
        await ann.send('[[text {"said": "same"}]]', session)
        for socket in (one, two):
            await socket.until("turn_end")
    seen = [json.dumps([f for f in socket.seen if "turnId" in f], sort_keys=True) for socket in (one, two)]
    assert seen[0] == seen[1]
