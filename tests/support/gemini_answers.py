"""The answers that the scripted Gemini server can give, as the bytes that Gemini would send."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

Json = dict[str, Any]

GREETING = "Hello from the scripted model."
STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@dataclass(frozen=True)
class Answer:
    """One scripted answer: the bytes of its events, when they come, and how it ends.

    `first` is the wait before the first byte, `delay` that between events: 0 sends all at once.
    `then` says what follows the last piece: a proper end, a cut socket, silence, or the last piece for ever.
    """

    pieces: tuple[bytes, ...] = ()
    first: float = 0.0
    delay: float = 0.0
    then: Literal["end", "cut", "hang", "repeat"] = "end"
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @cached_property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @cached_property
    def whole(self) -> bytes:
        """The same answer for `:generateContent`: the parts of all events in one."""
        if self.status != 200:
            return self.body
        events = [json.loads(piece.removeprefix(b"data: ")) for piece in self.pieces]
        parts = _joined(
            [part for each in events for part in each["candidates"][0]["content"].get("parts", [])]
        )
        last = events[-1]
        last["candidates"][0]["content"] = {"role": "model", "parts": parts}
        return json.dumps(last).encode()


def _joined(parts: list[Json]) -> list[Json]:
    """The parts with all texts in one, as an answer that is not streamed has them."""
    said = "".join(part.get("text", "") for part in parts)
    return ([{"text": said}] if said else []) + [part for part in parts if "text" not in part]


def event(
    parts: Sequence[Json], *, finish: str | None = None, tokens: int = 0, version: str = "gemini-2.5-flash"
) -> bytes:
    """One server-sent event of `:streamGenerateContent`."""
    candidate: Json = {"content": {"role": "model", "parts": list(parts)} if parts else {}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    usage = {"promptTokenCount": 10, "candidatesTokenCount": tokens, "totalTokenCount": 10 + tokens}
    body = {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": version,
        "responseId": "scripted",
    }
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\r\n\r\n"


def split(said: str, chunks: int) -> list[str]:
    """`said` in exactly `chunks` parts, as even as can be."""
    return [said[len(said) * i // chunks : len(said) * (i + 1) // chunks] for i in range(chunks)]


def text(
    said: str = GREETING,
    *,
    chunks: int = 3,
    first: float = 0.0,
    delay: float = 0.0,
    finish: str | None = "STOP",
    version: str = "gemini-2.5-flash",
) -> Answer:
    """A plain answer; `finish` may be `MAX_TOKENS`, `SAFETY`, or None for a stream that just stops."""
    pieces = tuple(
        event([{"text": part}], finish=finish if last == chunks else None, tokens=last, version=version)
        for last, part in enumerate(split(said, chunks), start=1)
    )
    return Answer(pieces, first, delay)


def calls(
    *wanted: Json, said: str = "", version: str = "gemini-2.5-flash", together: bool = True, **timing: float
) -> Answer:
    """Tool calls `{"name", "args", "id"?}` after `said`, all in one event unless `together` is False."""
    functions = [{"functionCall": call} for call in wanted]
    groups = ([[{"text": said}]] if said else []) + (
        [functions] if together else [[call] for call in functions]
    )
    last = len(groups)
    pieces = (
        event(group, finish="STOP" if n == last else None, tokens=n, version=version)
        for n, group in enumerate(groups, start=1)
    )
    return Answer(tuple(pieces), **timing)


def call(name: str, args: Json | None = None, **options: Any) -> Answer:
    """A single tool call."""
    return calls({"name": name, "args": args or {}}, **options)


def failure(
    status: int = 500, *, message: str = "Scripted failure.", retry_after: int | None = None
) -> Answer:
    """What Gemini answers when it refuses, with its `RetryInfo` if `retry_after` is given."""
    error: Json = {"code": status, "message": message, "status": STATUS.get(status, "UNKNOWN")}
    if retry_after is not None:
        info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after}s"}
        error["details"] = [info]
    return Answer((json.dumps({"error": error}).encode(),), status=status)


def failing_late(status: int = 503, *, said: str = GREETING) -> Answer:
    """Half an answer, then an error event in the stream."""
    error = failure(status).body
    return Answer((event([{"text": said}]), b"data: " + error + b"\r\n\r\n"))


def cut(
    said: str = GREETING, *, chunks: int = 4, after: int = 2, inside: bool = False, **timing: float
) -> Answer:
    """`after` of `chunks` events, then the socket is cut; `inside` an event if wished."""
    pieces = text(said, chunks=chunks).pieces
    half = (pieces[after][: len(pieces[after]) // 2],) if inside else ()
    return Answer(pieces[:after] + half, then="cut", **timing)


def unfinished(said: str = GREETING, *, chunks: int = 3, **timing: float) -> Answer:
    """A stream that ends in order, without a finishReason."""
    return text(said, chunks=chunks, finish=None, **timing)


def cut_call(name: str = "notify_user", *, said: str = "Let me see. ") -> Answer:
    """Text, then a socket cut in the middle of the event that holds a tool call."""
    whole = call(name, {"message": "hi"}, said=said).pieces
    return Answer((*whole[:-1], whole[-1][: len(whole[-1]) // 2]), then="cut")


def malformed(*, said: str = GREETING) -> Answer:
    """An event that is no JSON after one that is."""
    return Answer((event([{"text": said}]), b'data: {"candidates": [{]\r\n\r\n'))


def endless(*, delay: float = 0.01, said: str = "and ") -> Answer:
    """It never stops talking."""
    return Answer((event([{"text": said}], tokens=1),), delay=delay, then="repeat")


def empty(*, finish: str | None = "STOP") -> Answer:
    """It finishes without having said anything."""
    return Answer((event([], finish=finish),))


def nothing() -> Answer:
    """Status 200 and no events at all."""
    return Answer()


def blocked(reason: str = "SAFETY") -> Answer:
    """The prompt itself was refused: feedback, and no candidates."""
    body = {"promptFeedback": {"blockReason": reason}, "modelVersion": "gemini-2.5-flash"}
    return Answer((b"data: " + json.dumps(body).encode() + b"\r\n\r\n",))


def hang(*, said: str = "") -> Answer:
    """It takes the request and is silent, at once or after having `said` something."""
    return Answer((event([{"text": said}]),) if said else (), then="hang")


def limited(*, retry_after: int | None = None) -> Answer:
    """429."""
    return failure(429, retry_after=retry_after)


KINDS: dict[str, Callable[..., Answer]] = {
    function.__name__: function
    for function in (
        text,
        call,
        failure,
        failing_late,
        limited,
        cut,
        cut_call,
        unfinished,
        malformed,
        endless,
        empty,
        nothing,
        blocked,
        hang,
    )
} | {"calls": lambda wanted, **options: calls(*wanted, **options)}


def answer(kind: str, **options: Any) -> Answer:
    """The answer that a token or the control endpoint names."""
    return KINDS[kind](**options)
