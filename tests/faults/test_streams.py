"""Event streams over HTTP while processes die, Valkey goes away, servers end and clients do not read."""

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from http.client import HTTPResponse
from typing import Any

import psutil
import pytest

from tests.faults.proxy import Proxy
from tests.faults.world import World, died, tell, until
from tests.support.client import User
from tests.support.sse import Event, Parser, Stream, begun, crowded, listening, saying, stored, types, words

SLOW = "/slow 0.6 tell me something long"


@pytest.fixture
async def ann(world: World) -> AsyncGenerator[User]:
    async with User(world.url, "ann") as user:
        yield user


async def test_a_killed_worker_shows_as_a_higher_attempt_that_replaces_what_was_said(
    world: World, ann: User
) -> None:
    conversation = await begun(ann)
    async with saying(ann, conversation, SLOW) as stream, listening(ann, conversation) as everything:
        async with world.worker("worker.mid_turn=kill") as doomed:
            await died(doomed)
        half = await stream.heard("text_delta", attempt=1)
        async with listening(ann, conversation, half.id) as late, world.worker():
            await asyncio.gather(stream.over(), late.heard("turn_end"), everything.heard("turn_end"))
    (text,) = await stored(ann, conversation)
    starts = [event.data["attempt"] for event in stream.events if event.type == "message_start"]
    assert starts == [1, 2]
    assert words(stream.events) == text
    assert [event.inner["text"] for event in stream.events if event.type == "message_complete"] == [text]
    seen = stream.events[: stream.events.index(half) + 1]
    assert seen + late.events == stream.events
    assert words(seen + late.events) == text
    joined = "".join(event.inner["text"] for event in stream.events if event.type == "text_delta")
    assert len(joined) > len(text), "without the rule the words of both attempts would be shown"


async def test_a_server_that_is_told_to_end_lets_its_streams_go_and_they_go_on_elsewhere(
    world: World, ann: User
) -> None:
    conversation = await begun(ann)
    async with (
        world.worker(),
        world.server() as ending,
        User(ending.url, "ann") as there,
        listening(there, conversation) as everything,
        saying(there, conversation, "/slow 2 tell me something long", key="once") as answer,
    ):
        await answer.heard("text_delta")
        began = time.monotonic()
        assert await asyncio.to_thread(ending.stop) == 0
        assert time.monotonic() - began < 2
        await asyncio.gather(answer.over(), everything.over())
        assert "turn_end" not in types(answer.events)
        async with listening(ann, conversation, answer.last) as on:
            await on.heard("turn_end")
        async with listening(ann, conversation, everything.last) as also:
            await also.heard("turn_end")
        async with saying(ann, conversation, "/slow 2 tell me something long", key="once") as again:
            assert types(await again.over()) == ["message_complete", "turn_end"]
    (text,) = await stored(ann, conversation)
    assert words(answer.events + on.events) == text
    assert words(everything.events + also.events) == text


def _one_end(stream: Stream, status: str = "done") -> Event:
    """The end of a stream that may have been told of a gap, but of its end once."""
    ends = [event for event in stream.events if event.type == "turn_end"]
    assert [end.inner["status"] for end in ends] == [status]
    assert stream.events[-1] is ends[0]
    return ends[0]


async def test_an_answer_goes_on_and_ends_once_though_valkey_is_emptied_in_its_middle(
    world: World, ann: User
) -> None:
    conversation = await begun(ann)
    async with world.worker(), saying(ann, conversation, SLOW) as stream:
        seen = await stream.heard("text_delta")
        await world.valkey.flushall()
        await stream.over()
        async with listening(ann, conversation, seen.id) as late:
            resync = await late.heard("resync")
    _one_end(stream)
    (text,) = await stored(ann, conversation)
    assert [event.inner["text"] for event in stream.events if event.type == "message_complete"] == [text]
    assert [(turn["id"], turn["status"]) for turn in resync.inner["turns"]] == [(seen.turn, "done")]


@pytest.mark.parametrize("when", ["while it is said", "at its end"])
async def test_an_answer_ends_once_though_valkey_is_killed_in_its_middle(
    world: World, ann: User, when: str
) -> None:
    conversation = await begun(ann)
    async with world.worker(), saying(ann, conversation, "/slow 1 tell me something long") as stream:
        await stream.heard("text_delta")
        if when == "at its end":
            assert "message_complete" not in types(stream.events)
            await until(lambda: words(stream.events).endswith("no earlier"))
        tell(signal.SIGKILL, world.valkeys())
        await stream.over()
        _one_end(stream)
        assert "resync" in types(stream.events)
        async with saying(ann, conversation, "All well now?") as after:
            await after.over()
        _one_end(after)
    text, _ = await stored(ann, conversation)
    complete = [event.inner["text"] for event in stream.events if event.type == "message_complete"]
    assert complete in ([text], [])
    resync = next(event for event in stream.events if event.type == "resync")
    assert complete or resync.inner["turns"][0]["status"] == "done"


async def test_what_is_said_while_valkey_is_away_is_answered_from_the_database(
    world: World, ann: User
) -> None:
    conversation = await begun(ann)
    async with AsyncExitStack() as road:
        line = await road.enter_async_context(Proxy(world.embedded.sockets / "valkey.sock").listening())
        through = {"redis_url": f"redis://127.0.0.1:{line.port}/1"}
        async with world.server(**through) as cut_off, world.worker(), User(cut_off.url, "ann") as there:
            await road.aclose()
            async with saying(there, conversation, "Do you hear me?") as stream:
                await stream.over()
    assert types(stream.events) == ["message_complete", "turn_end"]
    _one_end(stream)
    assert [event.inner["text"] for event in stream.events[:1]] == await stored(ann, conversation)
    assert await world.one("SELECT count(*) FROM messages WHERE role = 'user'") == 1


async def test_a_silent_model_costs_a_sign_of_life_now_and_then(world: World) -> None:
    async with world.patched("lively") as lively, User(lively.url, "ann") as ann:
        conversation = await begun(ann)
        async with listening(ann, conversation) as idle:
            await idle.commented(3)
            assert set(idle.comments) == {"keep-alive"}
            assert idle.raw.endswith(b": keep-alive\n\n")
            async with saying(ann, conversation, "/slow 60 x") as stream:
                await stream.commented(4)  # the first says that the message was accepted
                assert "text_delta" not in types(stream.events)
                assert stream.comments == ["accepted", "keep-alive", "keep-alive", "keep-alive"]
                await ann.http.post(f"/api/conversations/{conversation}/abort")
                await stream.over()
            await idle.heard("turn_end")
    _one_end(stream, "aborted")


@contextmanager
def deaf(user: User, conversation: str) -> Generator[socket.socket]:
    """Somebody who listens to a conversation and does not read, with room for little on the way."""
    host, _, port = user.url.removeprefix("http://").partition(":")
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        line.settimeout(20)
        line.connect((host, int(port)))
        line.sendall(
            f"GET /api/conversations/{conversation}/events HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {user.token}\r\n\r\n".encode()
        )
        while b"id: " not in line.recv(65_536, socket.MSG_PEEK):
            time.sleep(0.01)
        yield line


@asynccontextmanager
async def flooded(world: World, **options: Any) -> AsyncGenerator[tuple[User, str, socket.socket, Any]]:
    """A server with a small buffer, a client that does not read, and 20 MB that came for all who listen."""
    settings = {"socket_buffer": 10, "event_log_length": 100_000, **options}
    async with world.server(**settings) as server, User(server.url, "ann") as ann:
        conversation = await begun(ann)
        with deaf(ann, conversation) as line:
            process = psutil.Process(server.pid)
            before = process.memory_info().rss
            async with listening(ann, conversation) as reader:
                await crowded(world.settings["redis_url"], "acme", conversation, 3000, 7000)
                await until(lambda: len(reader.events) == 3000)
            assert process.memory_info().rss - before < 12_000_000
            yield ann, conversation, line, process


async def test_a_client_that_does_not_read_is_cut_off(world: World) -> None:
    async with flooded(world, socket_send_timeout=2) as (ann, conversation, line, process):
        port = line.getsockname()[1]

        def let_go() -> bool:
            open_ones = process.net_connections("tcp")
            return not [one for one in open_ones if one.raddr and one.raddr.port == port]

        await until(let_go, 5)
        got = await asyncio.to_thread(_left, line)
        assert 0 < len(got) < 10_000_000
        assert not got.endswith(b"0\r\n\r\n"), "it is not told that this was all"
        assert (await ann.http.get(f"/api/conversations/{conversation}")).status_code == 200


async def test_a_client_that_reads_again_gets_everything_or_is_told_that_something_is_gone(
    world: World,
) -> None:
    async with flooded(world, socket_send_timeout=60) as (ann, conversation, line, _):
        with deaf(ann, conversation) as late:
            events = await asyncio.to_thread(_read, line)
            assert [int(event.id.partition(".")[2]) for event in events] == list(range(1, 3001))
            await crowded(world.settings["redis_url"], "acme", conversation, 3000, 7000)
            log = f"tertulia:{{c:acme:{conversation}}}:events"
            await world.valkey.xtrim(log, maxlen=10, approximate=False)
            events = await asyncio.to_thread(_read, late)
    assert events[-1].type == "resync"
    assert events[-1].id.endswith(".6000")
    assert len(events) < 2990


def _left(line: socket.socket) -> bytes:
    """What was still on the way when the line was cut."""
    got: list[bytes] = []
    with contextlib.suppress(ConnectionResetError):
        while data := line.recv(1 << 20):
            got.append(data)
    return b"".join(got)


def _read(line: socket.socket) -> list[Event]:
    """Everything up to where the log ends, at the 3000th event or the 6000th."""
    response, parser, events = HTTPResponse(line), Parser(), []
    response.begin()
    while not (events and events[-1].id.endswith((".3000", ".6000"))):
        events += parser.feed(response.read1(1 << 20))
    return events
