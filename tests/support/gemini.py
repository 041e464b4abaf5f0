"""A local server that speaks Gemini's REST and SSE, and answers as a test has scripted it.

What it answers, in this order: the next answer queued with `script`; the one that a token in the person's
last message asks for, `[[text {"said": "Hi", "chunks": 3}]]` or just `[[hang]]`; the default answer.
The words of a token are the functions of `gemini_answers`.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import re
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.support.gemini_answers import Answer, Json, answer, text

TOKEN = re.compile(r"\[\[(\w+)\s*(\{.*\})?\]\]", re.DOTALL)


@dataclass
class Recorded:
    """A request that the server received, and what became of it (`time.monotonic` seconds)."""

    model: str
    raw: bytes
    headers: dict[str, str]
    at: float = field(default_factory=time.monotonic)
    disconnected_at: float | None = None

    @cached_property
    def body(self) -> Json:
        return json.loads(self.raw)

    @property
    def contents(self) -> list[Json]:
        return self.body["contents"]

    @property
    def system(self) -> str:
        parts = self.body.get("systemInstruction", {}).get("parts", [])
        return "".join(part.get("text", "") for part in parts)

    @property
    def said(self) -> list[tuple[str, str]]:
        """What the model was shown, as (role, text); contents without text are left out."""
        pairs = ((c.get("role", "user"), _text(c)) for c in self.contents)
        return [pair for pair in pairs if pair[1]]

    @property
    def tools(self) -> list[str]:
        groups = self.body.get("tools") or []
        return [tool["name"] for group in groups for tool in group.get("functionDeclarations", [])]

    @property
    def tool_results(self) -> list[Json]:
        """The function responses after the last words of the model or the person."""
        return [part["functionResponse"] for part in self.contents[-1]["parts"] if "functionResponse" in part]


def _text(content: Json) -> str:
    return "".join(part.get("text", "") for part in content["parts"])


class ScriptedGemini:
    """The server: `with ScriptedGemini() as gemini:` runs it in a thread of this process.

    `requests` keeps the last 1,000; `default` answers when nothing else was asked for.
    """

    def __init__(self, default: Answer | None = None, *, port: int = 0) -> None:
        self.default = default or text()
        self.requests: deque[Recorded] = deque(maxlen=1000)
        self._queue: deque[Answer] = deque()
        self._gone = threading.Condition()
        self._socket = _listen(port)
        self._server = uvicorn.Server(_config(self._application()))
        self._thread = threading.Thread(target=self.serve, name="scripted-gemini", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)
        self._socket.close()

    def serve(self) -> None:
        """Serve in this thread until stopped."""
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def script(self, *answers: Answer) -> None:
        """Queue answers; each is used once, before tokens and the default are looked at."""
        self._queue.extend(answers)

    def reset(self) -> None:
        """Forget what was queued and recorded."""
        self._queue.clear()
        self.requests.clear()

    @property
    def disconnects(self) -> list[Recorded]:
        """The requests whose client went away before the answer was complete."""
        return [request for request in list(self.requests) if request.disconnected_at is not None]

    def wait_for_disconnect(self, timeout: float = 5.0) -> Recorded:
        """The first request whose client went away; blocks, so call it with `asyncio.to_thread`."""
        with self._gone:
            assert self._gone.wait_for(lambda: self.disconnects, timeout), "no client disconnected"
            return self.disconnects[0]

    def _application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1beta/models/{model}:{method}", _Generate(self), methods=["POST"]),
                Route("/control/script", self._control_script, methods=["POST"]),
                Route("/control/requests", self._control_requests),
                Route("/control/reset", self._control_reset, methods=["POST"]),
            ]
        )

    async def _control_script(self, request: Request) -> Response:
        """Takes `{"queue": [{"kind", …}], "default": {"kind", …}}`, both optional."""
        wanted = await request.json()
        self.script(*(answer(**item) for item in wanted.get("queue", ())))
        if "default" in wanted:
            self.default = answer(**wanted["default"])
        return Response(status_code=204)

    async def _control_requests(self, _: Request) -> Response:
        rows = [
            {"model": r.model, "body": r.body, "disconnected": r.disconnected_at is not None}
            for r in self.requests
        ]
        return JSONResponse(rows)

    async def _control_reset(self, _: Request) -> Response:
        self.reset()
        return Response(status_code=204)

    def choose(self, request: Recorded) -> Answer:
        """What this request gets."""
        if self._queue:
            return self._queue.popleft()
        return _asked_for(request) or self.default

    def left(self, request: Recorded) -> None:
        """The client of this request went away."""
        with self._gone:
            request.disconnected_at = time.monotonic()
            self._gone.notify_all()


def _asked_for(request: Recorded) -> Answer | None:
    """The answer that the person's last message names; once its tool has answered, a text that says so."""
    if b"[[" not in request.raw:
        return None
    said = [
        _text(content) for content in request.contents if content.get("role") == "user" and _text(content)
    ]
    found = TOKEN.search(said[-1]) if said else None
    if not found:
        return None
    if request.tool_results:
        return text(f"The tool said: {json.dumps(request.tool_results[0]['response'], ensure_ascii=False)}")
    return answer(found[1], **json.loads(found[2] or "{}"))


class _Generate:
    """`:generateContent` and `:streamGenerateContent`, as bare ASGI: benchmarks should not measure us."""

    def __init__(self, gemini: ScriptedGemini) -> None:
        self.gemini = gemini

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Recorded(
            model=scope["path_params"]["model"],
            raw=await _read(receive),
            headers={name.decode(): value.decode() for name, value in scope["headers"]},
        )
        self.gemini.requests.append(request)
        chosen = self.gemini.choose(request)
        with contextlib.suppress(_GoneError):
            await self._answer(
                chosen, scope["path_params"]["method"], _Line(request, self.gemini, receive, send)
            )

    async def _answer(self, chosen: Answer, method: str, line: "_Line") -> None:
        await line.wait(chosen.first)
        if chosen.status != 200 or method == "generateContent":
            await line.begin(chosen.status, b"application/json", chosen.headers)
            return await line.write(chosen.whole, more=False)
        if chosen.pieces or chosen.then != "hang":
            await line.begin(200, b"text/event-stream", chosen.headers)
            await self._stream(chosen, line)
        return await self._end(chosen, line)

    async def _stream(self, chosen: Answer, line: "_Line") -> None:
        if not chosen.delay:
            return await line.write(chosen.body, more=True)
        for number, piece in enumerate(chosen.pieces):
            await line.wait(chosen.delay if number else 0)
            await line.write(piece, more=True)
        return None

    async def _end(self, chosen: Answer, line: "_Line") -> None:
        while chosen.then == "repeat":
            await line.wait(chosen.delay or 0.001)
            await line.write(chosen.pieces[-1], more=True)
        if chosen.then == "hang":
            await line.wait(3600)
        if chosen.then == "end":
            await line.write(b"", more=False)
        # A cut: returning without having completed the response makes uvicorn close the socket.


@dataclass
class _Line:
    """The open connection to one client."""

    request: Recorded
    gemini: ScriptedGemini
    receive: Receive
    send: Send

    async def begin(self, status: int, content_type: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        head = [(b"content-type", content_type), *headers]
        await self.send({"type": "http.response.start", "status": status, "headers": head})

    async def write(self, body: bytes, *, more: bool) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    async def wait(self, seconds: float) -> None:
        """Let the time pass; `_GoneError` as soon as the client has left."""
        if not seconds:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.receive()
            self.gemini.left(self.request)
            raise _GoneError


class _GoneError(Exception):
    """The client went away."""


async def _read(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(1024)
    return listening


def _config(application: Starlette) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a cut socket is meant, not an error
    return uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=300,
    )


def main() -> None:
    """Print the port, serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chunks", type=int, default=3, help="events of the default answer")
    parser.add_argument("--first", type=float, default=0.0, help="seconds before its first byte")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds between its events")
    given = parser.parse_args()
    default = text("Hello! " * given.chunks, chunks=given.chunks, first=given.first, delay=given.delay)
    gemini = ScriptedGemini(default, port=given.port)
    print(gemini.url.rsplit(":", 1)[1], flush=True)
    gemini.serve()


if __name__ == "__main__":
    main()
