"""A stream whose worker was killed in mid-turn, cut anywhere: whoever comes back lacks nothing and repeats nothing."""

import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.faults.world import died, running
from tests.scenarios.conftest import Alone
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import text
from tests.support.instance import Instance
from tests.support.sse import Event, Parser, begun, listening, saying, stored, types, words

FIRST = text("Words of one who will not live to end them", chunks=8, first=0.2, delay=0.2)
SECOND = text("Zwölf andere Wörter:\n日本語 👩‍👩‍👧\r\n\r\nid: 7\n\nfrom the heir", chunks=8, delay=0.02)
CUTS = 30


class Recording(NamedTuple):
    """All bytes that a listener got of a turn of two attempts, and the way back to the log, which has gone on."""

    raw: bytes
    text: str
    http: httpx.Client
    place: str
    later: str | None

    @property
    def events(self) -> list[Event]:
        return Parser().feed(self.raw)

    @property
    def least(self) -> int:
        """Before the first id there is nothing to come back with."""
        return self.raw.index(b"\n\n", self.raw.index(b"id: ")) + 2

    def after(self, last: str) -> list[Event]:
        """What one gets who comes back with this id, up to the turn that came later."""
        parser, events = Parser(), []
        with self.http.stream("GET", self.place, headers={"Last-Event-ID": last}) as response:
            for data in response.iter_raw():
                events += parser.feed(data)
                if events and events[-1].turn == self.later:
                    return [event for event in events if event.turn != self.later]
        raise AssertionError(f"the stream ended: {events!r}")

    def cut(self, end: int) -> list[Event]:
        """What somebody has seen whose stream was cut at this byte, and who then came back."""
        parser = Parser()
        seen = parser.feed(self.raw[:end])
        assert parser.last is not None
        return seen + self.after(parser.last)


@pytest.fixture(scope="module")
async def recording(alone: Alone, gemini: ScriptedGemini, folder: Path) -> AsyncGenerator[Recording]:
    settings = await alone(lease_seconds=1.5, sweep_seconds=0.3)
    front = Instance("serve", folder, "--no-worker", "--port", "0", **settings)
    async with running(front) as server, User(server.url, "ann") as ann:
        conversation = await begun(ann)
        place = f"/api/conversations/{conversation}/events"
        gemini.script(FIRST, SECOND)
        raw, later = await _heard(ann, conversation, settings, folder)
        said, _ = await stored(ann, conversation)
        with httpx.Client(base_url=ann.url, headers=ann.http.headers, trust_env=False) as http:
            yield Recording(raw, said, http, place, later)


async def _heard(
    ann: User, conversation: str, settings: dict[str, object], folder: Path
) -> tuple[bytes, str | None]:
    """What one hears who listens all the time, up to the end of the turn, and the turn that came later."""
    async with listening(ann, conversation) as everything:
        await everything.begun()
        await ann.send("Tell me something", conversation)
        doomed = Instance("worker", folder, failpoints="worker.mid_turn=kill", **settings)
        async with running(doomed):
            await died(doomed)
        async with running(Instance("worker", folder, **settings)):
            await everything.heard("turn_end")
            raw = everything.raw
            async with saying(ann, conversation, "Later") as later:
                await later.over()
        return raw, later.events[0].turn


def test_the_second_attempt_replaces_the_words_of_the_first(recording: Recording) -> None:
    starts = [event.data["attempt"] for event in recording.events if event.type == "message_start"]
    attempts = [event.data["attempt"] for event in recording.events if "attempt" in event.data]
    assert starts == [1, 2]
    assert attempts == sorted(attempts)
    assert recording.text == "Zwölf andere Wörter:\n日本語 👩‍👩‍👧\r\n\r\nid: 7\n\nfrom the heir"
    assert words(recording.events) == recording.text
    assert types(recording.events)[-2:] == ["message_complete", "turn_end"]
    deltas = [event.inner["text"] for event in recording.events if event.type == "text_delta"]
    assert len("".join(deltas)) > len(recording.text), "what the first attempt said was heard too"


def test_a_cut_after_any_event_of_either_attempt_loses_and_repeats_nothing(recording: Recording) -> None:
    raw = recording.raw
    ends = [n + 2 for n in range(len(raw)) if raw[n : n + 2] == b"\n\n"]
    assert len(ends) > 8
    for end in ends[ends.index(recording.least) :]:
        _nothing_is_missing_or_twice(recording, recording.cut(end))


@pytest.mark.parametrize("seed", range(3))
def test_a_cut_at_any_byte_of_either_attempt_loses_and_repeats_nothing(
    recording: Recording, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311
    for _ in range(CUTS // 3):
        _nothing_is_missing_or_twice(
            recording, recording.cut(chance.randint(recording.least, len(recording.raw)))
        )


def _nothing_is_missing_or_twice(recording: Recording, seen: list[Event]) -> None:
    assert seen == recording.events
    offsets = [int(event.id.partition(".")[2]) for event in seen]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    assert words(seen) == recording.text
