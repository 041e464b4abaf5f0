"""Somebody who listens to a conversation all the time, and what is wrong with what they heard."""

import asyncio
from collections.abc import Iterator
from typing import Any, Self

from websockets.exceptions import ConnectionClosed

from tests.support.client import Socket

Frame = dict[str, Any]


class Listener:
    """Reads one socket in the background and keeps every frame."""

    def __init__(self, socket: Socket, *, from_the_start: bool) -> None:
        self._socket = socket
        self._came = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None
        self.from_the_start = from_the_start
        self.frames: list[Frame] = []

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _read(self) -> None:
        try:
            while True:
                frame = await self._socket.next(3600)
                async with self._came:
                    self.frames.append(frame)
                    self._came.notify_all()
        except ConnectionClosed as closed:
            async with self._came:
                self.frames.append({"type": "closed", "reason": str(closed)})
                self._came.notify_all()

    async def heard(self, kind: str, patience: float = 20, **fields: Any) -> Frame:
        """The first frame of this type with these fields, from the beginning of what was heard."""
        found: list[Frame] = []

        def there() -> bool:
            found.extend(
                frame
                for frame in self.frames
                if frame["type"] == kind and all(frame.get(k) == v for k, v in fields.items())
            )
            return bool(found)

        try:
            async with asyncio.timeout(patience), self._came:
                await self._came.wait_for(there)
        except TimeoutError:
            heard = "\n".join(map(str, self.frames))
            raise AssertionError(f"no {kind} {fields} within {patience} s, only:\n{heard}") from None
        return found[0]

    async def ended(self, turn: str, patience: float = 20) -> None:
        """Wait for the end of a turn: its event, or a `resync` that tells of it."""
        try:
            async with asyncio.timeout(patience), self._came:
                await self._came.wait_for(lambda: turn in self.ends())
        except TimeoutError:
            heard = "\n".join(map(str, self.frames))
            raise AssertionError(f"no end of {turn} within {patience} s, only:\n{heard}") from None

    def ends(self) -> list[str]:
        """The turns whose ends are known here, in the order in which they became known."""
        known: list[str] = []
        for frame in self.frames:
            if frame["type"] == "turn_end":
                known.append(frame["turnId"])
            elif frame["type"] == "resync":
                ended = [t for t in frame["data"]["turns"] if t["status"] in ("done", "failed", "aborted")]
                known += [turn["id"] for turn in ended if turn["id"] not in known]
        return known

    @property
    def resynced(self) -> bool:
        return any(frame["type"] == "resync" for frame in self.frames)

    def of(self, turn: str) -> list[Frame]:
        """The events of a turn."""
        return [frame for frame in self.frames if frame.get("turnId") == turn]

    def faults(self, turns: list[str]) -> Iterator[str]:
        """What was not as promised, for these turns in their order."""
        yield from self._cursors()
        for turn in turns:
            yield from self._events(turn, self.of(turn))
            if self.from_the_start:
                yield from self._pushes(turn)
        ends = [turn for turn in dict.fromkeys(self.ends()) if turn in turns]
        if ends != turns:
            yield f"the ends came as {ends}, not as {turns}"

    def text(self, turn: str) -> str:
        """The words of the last attempt, joined."""
        events = self.of(turn)
        last = max((event["attempt"] for event in events if "attempt" in event), default=0)
        words = (e["data"]["text"] for e in events if e["type"] == "text_delta" and e["attempt"] == last)
        return "".join(words)

    def _events(self, turn: str, events: list[Frame]) -> Iterator[str]:
        ours = [event for event in events if "attempt" in event]
        ends = [event for event in ours if event["type"] == "turn_end"]
        if len(ends) != 1 and not (self.resynced and turn in self.ends()):
            yield f"{turn} has {len(ends)} ends"
        if ends and ours[-1]["type"] != "turn_end":
            yield f"{turn} goes on after its end with {ours[-1]['type']}"
        attempt = 0
        for event in ours:
            if event["attempt"] < attempt:
                yield f"{turn}: {event['type']} of attempt {event['attempt']} after attempt {attempt} began"
            attempt = max(attempt, event["attempt"])
        starts = [event["attempt"] for event in ours if event["type"] == "message_start"]
        if len(starts) != len(set(starts)):
            yield f"{turn} began twice under one number: {starts}"

    def _pushes(self, turn: str) -> Iterator[str]:
        pushes = [f for f in self.frames if f.get("topic") == "user" and f.get("turn_id") == turn]
        if len(pushes) > 1 or (not pushes and not self.resynced):
            yield f"{turn} was pushed {len(pushes)} times"

    def _cursors(self) -> Iterator[str]:
        generation, offset = "", 0
        for frame in self.frames:
            if "cursor" not in frame or not frame.get("conversationId"):
                continue  # no event of the conversation
            of, _, at = frame["cursor"].partition(".")
            if of == generation and int(at) <= offset and frame["type"] != "resync":
                yield f"cursor {frame['cursor']} after {offset}"
            if of != generation and generation and frame["type"] != "resync" and at != "1":
                yield f"generation {of} without a resync, and not from its beginning"
            generation, offset = of, int(at)
