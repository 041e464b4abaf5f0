"""Streams that break off: whoever comes back gets what is missing, once; leaving stops nothing."""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from typing import NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tertulia.embedded import Services
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import failing_late, text
from tests.support.instance import Instance
from tests.support.observe import asked
from tests.support.refusals import refused
from tests.support.sse import Event, Parser, begun, crowded, listening, saying, stored, types, words


def _escaped(piece: bytes) -> bytes:
    """As Gemini sends it: what some take for the end of a line is escaped."""
    return b"data: " + json.dumps(json.loads(piece[6:])).encode() + b"\r\n\r\n"


ODD = (
    "Zwölf\nlines\r\nof \u2028 and \u2029 and \x85,\n\ndata: {}\nid: 7\n\n: 日本語 👩‍👩‍👧 \ufeff\x0b\x1c end"
)
ASKED = f"Say \u2028 this:\r\n{ODD}"
ESCAPED = text(ODD, chunks=12, delay=0.02)
ESCAPED = replace(ESCAPED, pieces=tuple(_escaped(piece) for piece in ESCAPED.pieces))
SLOW = '[[text {"said": "one two three four", "chunks": 4, "delay": 0.15}]]'


class Recording(NamedTuple):
    """The bytes of a turn, as the one who asked and one who listened got them."""

    raws: tuple[bytes, bytes]
    events: list[Event]
    text: str
    http: httpx.Client
    place: str
    later: str | None

    def after(self, last: str) -> bytes:
        """What one gets who comes back with this id, up to the turn that came later."""
        raw, parser = b"", Parser()
        with self.http.stream("GET", self.place, headers={"Last-Event-ID": last}) as response:
            for data in response.iter_raw():
                raw += data
                if any(event.turn == self.later for event in parser.feed(data)):
                    return raw
        raise AssertionError(f"the stream ended: {raw!r}")

    def read(self, raw: bytes, parser: Parser) -> list[Event]:
        return [event for event in parser.feed(raw) if event.turn != self.later]


@pytest.fixture(scope="module")
async def recorder(server: Instance) -> AsyncGenerator[User]:
    async with User(server.url, "recorder") as user:
        yield user


@pytest.fixture(scope="module")
async def spoken(recorder: User, gemini: ScriptedGemini) -> tuple[str, bytes, bytes, str | None]:
    """A conversation, its first turn as heard in both ways, and its second turn."""
    conversation = await begun(recorder)
    gemini.script(ESCAPED)
    async with (
        listening(recorder, conversation) as everything,
        saying(recorder, conversation, ASKED) as answer,
    ):
        await answer.over()
        await everything.heard("turn_end")
    async with saying(recorder, conversation, "Later") as later:
        await later.over()
    return conversation, answer.raw, everything.raw, later.events[0].turn


@pytest.fixture(scope="module")
async def recording(
    recorder: User, spoken: tuple[str, bytes, bytes, str | None]
) -> AsyncGenerator[Recording]:
    conversation, answer, everything, later = spoken
    said = (await stored(recorder, conversation))[0]
    place = f"/api/conversations/{conversation}/events"
    with httpx.Client(base_url=recorder.url, headers=recorder.http.headers, trust_env=False) as http:
        events = Parser().feed(answer)
        yield Recording((answer, everything), events, said, http, place, later)


def test_any_text_comes_as_it_is_stored_however_it_is_listened_to(recording: Recording) -> None:
    assert recording.text == ODD
    assert words(recording.events) == ODD
    assert Parser().feed(recording.raws[1]) == recording.events
    assert types(recording.events).count("text_delta") >= 6
    assert recording.events[0].inner["message"] == ASKED
    assert recording.events[-2].inner["text"] == ODD


@pytest.mark.parametrize("way", [0, 1], ids=["the answer", "the conversation"])
def test_a_stream_cut_after_any_event_goes_on_with_the_next(recording: Recording, way: int) -> None:
    raw = recording.raws[way]
    ends = [n + 2 for n in range(len(raw)) if raw[n : n + 2] == b"\n\n"]
    for end in ends if way else ends[1:]:
        parser = Parser()
        seen = parser.feed(raw[:end])
        assert parser.last is not None
        seen += recording.read(recording.after(parser.last), Parser())
        assert seen == recording.events


@given(way=st.integers(0, 1), cuts=st.lists(st.floats(0, 1), min_size=1, max_size=3))
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # fmt: skip
def test_a_stream_cut_at_any_byte_again_and_again_lacks_nothing_and_repeats_nothing(
    recording: Recording, way: int, cuts: list[float]
) -> None:
    raw = recording.raws[way]
    least = (
        raw.index(b"\n\n", raw.index(b"id: ")) + 2
    )  # before the first id there is nothing to come back with
    seen: list[Event] = []
    last = ""
    for cut in cuts:
        parser = Parser()
        seen += recording.read(raw[: least + round(cut * (len(raw) - least))], parser)
        last = parser.last or last
        if len(seen) == len(recording.events):
            break
        raw, least = recording.after(last), 0
    else:
        seen += recording.read(raw, Parser())
    assert seen == recording.events
    assert words(seen) == recording.text


async def test_leaving_in_mid_answer_stops_nothing_and_coming_back_gives_the_rest(
    ann: User, gemini: ScriptedGemini
) -> None:
    conversation = await begun(ann)
    async with saying(ann, conversation, SLOW) as leaving:
        await leaving.heard("text_delta")
    seen = leaving.events
    assert "turn_end" not in types(seen)
    async with listening(ann, conversation, leaving.last) as back:
        await back.heard("turn_end")
    assert words(seen + back.events) == "one two three four"
    assert back.events[-1].inner["status"] == "done"
    assert asked(gemini, SLOW).disconnected_at is None
    assert await stored(ann, conversation) == ["one two three four"]


async def test_a_repeat_with_the_same_key_joins_the_running_turn_from_its_beginning(
    ann: User, backends: Services
) -> None:
    conversation = await begun(ann)
    await crowded(backends.redis_url, "acme", conversation, 700)
    async with saying(ann, conversation, SLOW, key="once") as first:
        await first.heard("text_delta")
        async with saying(ann, conversation, SLOW, key="once") as second:
            assert first.end is None
            await asyncio.gather(first.over(), second.over())
    assert second.events == first.events
    assert words(second.events) == "one two three four"
    async with saying(ann, conversation, SLOW, key="once") as third:
        replayed = await third.over()
    assert types(replayed) == ["message_complete", "turn_end"]
    assert [event.inner for event in replayed] == [event.inner for event in first.events[-2:]]
    assert {event.turn for event in replayed} == {first.events[0].turn}
    other = await ann.http.post(
        f"/conversations/{conversation}/messages",
        json={"content": "Something else"},
        headers={"Idempotency-Key": "once"},
    )
    refused(other, 409, "IDEMPOTENCY_KEY_REUSED")
    assert len((await ann.conversation(conversation))["messages"]) == 2


async def test_the_end_of_a_turn_that_failed_is_replayed_with_its_error(ann: User) -> None:
    conversation = await begun(ann)
    broken = '[[failing_late {"said": "Half"}]]'
    async with saying(ann, conversation, broken, key="once") as first:
        await first.over()
    async with saying(ann, conversation, broken, key="once") as again:
        replayed = await again.over()
    assert [(event.type, event.inner) for event in replayed] == [
        (event.type, event.inner) for event in first.events[-2:]
    ]
    assert types(replayed) == ["error", "turn_end"]


async def test_a_repeat_hears_all_of_a_turn_that_waited_long_behind_another(
    ann: User, backends: Services
) -> None:
    conversation = await begun(ann)
    hang = '[[hang {"said": "Hm"}]]'
    async with saying(ann, conversation, SLOW) as before, saying(ann, conversation, hang, key="k") as first:
        await first.heard("conversation:user_message")
        await crowded(backends.redis_url, "acme", conversation, 1200)
        await first.heard("text_delta")
        async with saying(ann, conversation, hang, key="k") as second:
            await second.heard("text_delta")
            await ann.http.post(f"/api/conversations/{conversation}/abort")
            await asyncio.gather(first.over(), second.over(), before.over())
    assert types(first.events)[0] == "conversation:user_message"
    assert second.events == first.events


async def test_two_who_come_at_once_with_one_key_hear_the_same(ann: User) -> None:
    for _ in range(5):
        conversation = await begun(ann)
        one, two = await asyncio.gather(_heard(ann, conversation), _heard(ann, conversation))
        assert one == two
        assert types(one)[0] == "conversation:user_message"
        assert await stored(ann, conversation) == ["Both of you"]


async def _heard(user: User, conversation: str) -> list[Event]:
    spoken = '[[text {"said": "Both of you", "first": 0.1}]]'
    async with saying(user, conversation, spoken, key="both") as stream:
        return await stream.over()


@pytest.fixture
def scripted(gemini: ScriptedGemini) -> Generator[ScriptedGemini]:
    yield gemini
    gemini.reset()


async def test_a_repeat_joins_the_second_try_and_not_the_failure_before_it(
    ann: User, scripted: ScriptedGemini
) -> None:
    conversation = await begun(ann)
    scripted.script(failing_late(said="Half"), text("Now it works", chunks=3, delay=0.2))
    async with saying(ann, conversation, "Try", key="once") as failed:
        await failed.over()
    turn = failed.events[0].turn
    async with listening(ann, conversation, failed.last) as everything:
        assert (await ann.http.post(f"/api/turns/{turn}/retry")).status_code == 202
        await everything.heard("text_delta")
        async with saying(ann, conversation, "Try", key="once") as again:
            await again.over()
        await everything.heard("turn_end")
    assert failed.events[-1].inner["status"] == "failed"
    assert again.events == everything.events
    assert words(again.events) == "Now it works"
    assert again.events[-1].inner["status"] == "done"
