"""The clients, in a process of their own. Commands come as JSON lines on standard input, answers go out likewise."""

import asyncio
import json
import resource
import statistics
import sys
import time
from typing import Any

import uvloop

from bench.alone import WORDS
from bench.wire import Http, Stream, Ws, at_times, request


async def accept(url: str, path: str, tokens: list[str], seconds: float, sessions: str) -> dict[str, Any]:
    """As many 202s as possible for a while, a conversation per connection."""
    counts: list[int] = []

    async def loop(index: int, token: str) -> None:
        connection = await Http.open(url)
        body = json.dumps({"content": WORDS, "session_id": f"{sessions}-{index}"}).encode()
        whole = request("POST", path, token, body)
        count = 0
        await connection.ask(whole)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            status, answer = await connection.ask(whole)
            assert status == 202, answer
            count += 1
        counts.append(count)
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(loop(index, token) for index, token in enumerate(tokens)))
    return {"rate": sum(counts) / (time.perf_counter() - began)}


class Talker:
    """A user with a conversation open: posts by HTTP, listens on a WebSocket."""

    def __init__(self, http: Http, socket: Ws, token: str, session: str) -> None:
        self.http, self.socket, self.session = http, socket, session
        self._whole = request(
            "POST", "/api/messages", token, json.dumps({"content": WORDS, "session_id": session}).encode()
        )

    @classmethod
    async def open(cls, url: str, token: str, session: str) -> "Talker":
        http = await Http.open(url)
        body = json.dumps({"content": WORDS, "session_id": session}).encode()
        status, answer = await http.ask(request("POST", "/api/messages", token, body))
        assert status == 202, answer
        conversation = json.loads(answer)["conversation_id"]
        _, answer = await http.ask(request("GET", f"/api/conversations/{conversation}?limit=1", token))
        socket = await Ws.open(url, token)
        await socket.until(b"connected")
        socket.say(type="subscribe", sessionId=json.loads(answer)["conversation"]["sessionId"])
        await socket.until(b"subscribed")
        talker = cls(http, socket, token, session)
        await asyncio.sleep(1)  # the first turn ends meanwhile
        return talker

    async def turn(self) -> float:
        """One whole turn; yields the seconds to the first words."""
        began = time.perf_counter()
        status, answer = await self.http.ask(self._whole)
        assert status == 202, answer
        name = json.loads(answer)["turn_id"].encode()
        while name not in await self.socket.until(b"text_delta"):
            pass
        first = time.perf_counter() - began
        while name not in await self.socket.until(b"turn_end"):
            pass
        return first


class Talkers:
    def __init__(self) -> None:
        self._all: list[Talker] = []

    async def open(self, url: str, tokens: list[str], sessions: str) -> dict[str, Any]:
        opening = (Talker.open(url, token, f"{sessions}-{i}") for i, token in enumerate(tokens))
        self._all = list(await asyncio.gather(*opening))
        return {}

    async def closed(self, parallel: int, turns: int) -> dict[str, Any]:
        left = iter(range(turns))
        firsts: list[float] = []

        async def loop(talker: Talker) -> None:
            for _ in left:
                firsts.append(await talker.turn())  # noqa: PERF401  one after another

        began = time.perf_counter()
        await asyncio.gather(*(loop(talker) for talker in self._all[:parallel]))
        return {"wall": time.perf_counter() - began, "firsts": firsts}

    async def paced(self, times: list[float]) -> dict[str, Any]:
        """Open loop: turns begin when they are due, on the next conversation that is free."""
        free: asyncio.Queue[Talker] = asyncio.Queue()
        for talker in self._all:
            free.put_nowait(talker)

        async def one(_: int) -> float:
            due = time.perf_counter()
            talker = await free.get()
            waited = time.perf_counter() - due
            try:
                return waited + await talker.turn()
            finally:
                free.put_nowait(talker)

        return {"firsts": await at_times(times, one)}


class Streamers:
    """Users with a standing conversation, who post and read the answer as it comes."""

    def __init__(self) -> None:
        self._all: list[tuple[Stream, bytes]] = []

    async def open(self, url: str, tokens: list[str]) -> dict[str, Any]:
        for token in tokens:
            http = await Http.open(url)
            _, answer = await http.ask(request("GET", "/conversations/assistant", token))
            http.close()
            path = f"/conversations/{json.loads(answer)['id']}/messages"
            whole = request("POST", path, token, json.dumps({"content": WORDS}).encode())
            self._all.append((await Stream.open(url), whole))
        return {}

    async def closed(self, parallel: int, turns: int) -> dict[str, Any]:
        """So many answers; the characters of their words as they came, and the number of events."""
        left = iter(range(turns))
        bodies: list[bytes] = []

        async def loop(stream: Stream, whole: bytes) -> None:
            for _ in left:
                bodies.append(await stream.ask(whole))  # noqa: PERF401  one after another

        began = time.perf_counter()
        await asyncio.gather(*(loop(*each) for each in self._all[:parallel]))
        wall = time.perf_counter() - began
        events = [event for body in bodies for event in body.split(b"\n\n") if b"event: text_delta" in event]
        words = (json.loads(event.partition(b"data: ")[2])["data"]["text"] for event in events)
        return {"wall": wall, "events": len(events), "characters": sum(map(len, words))}


class Crowd:
    """Very many sockets, each listening to a session."""

    def __init__(self) -> None:
        self._sockets: list[Ws] = []

    async def open(self, url: str, token: str, sessions: list[str]) -> dict[str, Any]:
        for start in range(0, len(sessions), 100):
            self._sockets += await asyncio.gather(
                *(self._one(url, token, session) for session in sessions[start : start + 100])
            )
        return {"open": len(self._sockets)}

    async def _one(self, url: str, token: str, session: str) -> Ws:
        socket = await Ws.open(url, token)
        await socket.until(b"connected")
        socket.say(type="subscribe", sessionId=session)
        await socket.until(b"subscribed")
        return socket

    async def receive(self) -> dict[str, Any]:
        """Wait until each has received an event."""
        async with asyncio.timeout(60):
            await asyncio.gather(*(socket.until(b"turn_end") for socket in self._sockets))
        return {"received": len(self._sockets)}

    async def close(self) -> dict[str, Any]:
        for socket in self._sockets:
            socket.close()
        self._sockets.clear()
        return {}


async def fetch(url: str, paths: list[str], token: str | None, rounds: int) -> dict[str, Any]:
    """Read these addresses one after another; the median seconds for all of them, and the bytes."""
    connection = await Http.open(url)
    requests = [request("GET", path, token) for path in paths]
    seconds: list[float] = []
    size = 0
    for _ in range(rounds):
        began, size = time.perf_counter(), 0
        for whole in requests:
            status, answer = await connection.ask(whole)
            assert status == 200, answer
            size += len(answer)
        seconds.append(time.perf_counter() - began)
    connection.close()
    return {"seconds": statistics.median(seconds), "bytes": size}


async def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    talkers, crowd, streamers = Talkers(), Crowd(), Streamers()
    commands = {
        "accept": accept, "open": talkers.open, "closed": talkers.closed, "paced": talkers.paced,
        "crowd": crowd.open, "receive": crowd.receive, "leave": crowd.close, "fetch": fetch,
        "standing": streamers.open, "stream": streamers.closed,
    }  # fmt: skip
    loop = asyncio.get_running_loop()
    print(json.dumps("ready"), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        print(json.dumps(await commands[command.pop("do")](**command)), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
