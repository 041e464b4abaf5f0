"""Answers and conversations as server-sent events: what comes, when, and to whom."""

import asyncio
import json
import time
from collections.abc import Generator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.conftest import Someone, word
from tests.support.client import LEEWAY, User
from tests.support.instance import Instance
from tests.support.observe import eventually
from tests.support.refusals import refused
from tests.support.sse import Parser, begun, listening, saying, stored, types, words


async def abort(user: User, conversation: str) -> None:
    response = await user.http.post(f"/api/conversations/{conversation}/abort")
    assert response.json()["status"] == "GENERATION_ABORTED"


@pytest.mark.scenario("001", "Send message with streaming response")
async def test_an_answer_comes_as_the_model_says_it_and_the_stream_ends_with_the_turn(ann: User) -> None:
    conversation = await begun(ann)
    spoken = '[[text {"said": "one two three", "chunks": 3, "delay": 0.25}]]'
    async with saying(ann, conversation, spoken) as stream:
        events = await stream.over()
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.headers["cache-control"] == "no-cache, no-transform"
    assert stream.headers["x-accel-buffering"] == "no"
    assert "content-length" not in stream.headers
    deltas = [event for event in events if event.type == "text_delta"]
    assert types(events) == [
        "conversation:user_message",
        "message_start",
        "text_delta",
        "text_delta",
        "text_delta",
        "message_complete",
        "turn_end",
    ]
    assert "".join(delta.inner["text"] for delta in deltas) == "one two three"
    assert deltas[-1].at - deltas[0].at > 0.4, "the first came when the last was not yet said"
    assert events[-2].inner["text"] == "one two three"
    assert events[-1].inner["status"] == "done"
    offsets = [int(event.id.partition(".")[2]) for event in events]
    assert offsets == list(range(offsets[0], offsets[0] + 7))
    assert len({event.id.partition(".")[0] for event in events}) == 1
    assert {(event.data["conversationId"], event.turn) for event in events} == {
        (conversation, events[0].turn)
    }
    assert await stored(ann, conversation) == ["one two three"]


async def test_words_reach_a_plain_client_while_the_model_still_thinks(ann: User) -> None:
    """One that blocks in `recv` and reads line by line."""
    conversation = await begun(ann)
    place = f"/conversations/{conversation}/messages"
    body = json.dumps({"content": '[[hang {"said": "Well"}]]'})
    headers = {"Authorization": f"Bearer {ann.token}", "Content-Type": "application/json"}
    parser, events = Parser(), []
    with closing(HTTPConnection(ann.url.removeprefix("http://"), timeout=10)) as line:
        line.request("POST", place, body, headers)
        response = await asyncio.to_thread(line.getresponse)
        while "text_delta" not in types(events):
            assert not response.isclosed(), types(events)
            events += parser.feed(await asyncio.to_thread(response.readline))
        assert [turn["status"] for turn in (await ann.conversation(conversation))["turns"]] == ["running"]
        await abort(ann, conversation)
        events += parser.feed(await asyncio.to_thread(response.read))
    assert words(events) == "Well"
    assert (events[-1].type, events[-1].inner["status"]) == ("turn_end", "aborted")
    assert parser.unfinished == b""


async def test_each_stream_carries_its_own_message_only_and_the_conversations_carries_all(ann: User) -> None:
    conversation = await begun(ann)
    async with (
        listening(ann, conversation) as everything,
        saying(ann, conversation, '[[hang {"said": "first"}]]') as one,
    ):
        await one.heard("text_delta")
        async with saying(ann, conversation, '[[text {"said": "second"}]]') as two:
            assert one.end is None
            await two.heard("conversation:user_message")
            await abort(ann, conversation)  # both: what is queued too
            await asyncio.gather(one.over(), two.over())
            await everything.heard("turn_end", turnId=two.events[0].turn)
    assert {event.turn for event in one.events} == {one.events[0].turn}
    assert {event.turn for event in two.events} == {two.events[0].turn}
    assert one.events[0].turn != two.events[0].turn
    assert words(one.events) == "first"
    assert types(one.events)[-1] == types(two.events)[-1] == "turn_end"
    assert sorted(one.events + two.events, key=_offset) == everything.events


def _offset(event: Any) -> int:
    return int(event.id.partition(".")[2])


async def test_two_messages_of_one_conversation_are_answered_in_two_streams_in_order(ann: User) -> None:
    conversation = await begun(ann)
    async with saying(ann, conversation, '[[text {"said": "a b c", "chunks": 3, "delay": 0.1}]]') as one:
        await one.heard("text_delta")
        async with saying(ann, conversation, '[[text {"said": "d e f", "chunks": 3}]]') as two:
            await two.heard("conversation:user_message")
            assert one.end is None
            await asyncio.gather(one.over(), two.over())
    assert (words(one.events), words(two.events)) == ("a b c", "d e f")
    assert {event.turn for event in one.events} == {one.events[0].turn}
    assert {event.turn for event in two.events} == {two.events[0].turn}
    assert one.events[-1].at <= next(e.at for e in two.events if e.type == "message_start")


@pytest.mark.parametrize("prefer", ["respond-async", "wait=5, Respond-Async; x=1"])
async def test_who_prefers_not_to_wait_gets_a_202(ann: User, prefer: str) -> None:
    conversation = await begun(ann)
    response = await ann.http.post(
        f"/conversations/{conversation}/messages",
        json={"content": '[[text {"said": "Later"}]]'},
        headers={"Prefer": prefer},
    )
    assert response.status_code == 202
    assert response.headers["preference-applied"] == "respond-async"
    sent = response.json()
    assert (sent["status"], sent["conversation_id"]) == ("queued", conversation)
    assert (await ann.answered(sent))["reply"]["content"] == "Later"


async def test_an_error_of_the_model_in_mid_answer_is_an_event_with_its_status(ann: User) -> None:
    conversation = await begun(ann)
    async with saying(ann, conversation, '[[failing_late {"said": "Half"}]]') as stream:
        events = await stream.over()
    assert stream.status == 200
    assert words(events) == "Half"
    error, end = events[-2:]
    assert (error.type, error.inner["status"], error.inner["code"]) == ("error", 502, "MODEL_UNAVAILABLE")
    assert error.inner["temporary"] is True
    assert (end.type, end.inner["status"], end.inner["code"]) == ("turn_end", "failed", "MODEL_UNAVAILABLE")


async def test_a_conversations_stream_tells_first_where_it_is_and_one_can_go_on_from_there(ann: User) -> None:
    conversation = await begun(ann)
    async with saying(ann, conversation, "Before") as before:
        last = (await before.over())[-1].id
    async with listening(ann, conversation) as stream:
        assert await stream.begun() == last
        assert stream.raw == f"retry: 2000\nid: {last}\n\n".encode()
        assert stream.headers["x-accel-buffering"] == "no"
        async with saying(ann, conversation, "Now") as now:
            await now.over()
        await stream.heard("turn_end")
        assert stream.events == now.events
    place = f"/api/conversations/{conversation}/events"
    for address, headers in ((place, {"Last-Event-ID": last}), (f"{place}?after={last}", {})):
        parser, found = Parser(), []
        async with ann.http.stream("GET", address, headers=headers) as response:
            async for data in response.aiter_raw():
                found += parser.feed(data)
                if found and found[-1].type == "turn_end":
                    break
        assert found == now.events
    both = {"Last-Event-ID": now.events[-2].id}
    async with ann.http.stream("GET", f"{place}?after={last}", headers=both) as response:
        async for data in response.aiter_raw():
            assert types(Parser().feed(data)) == ["turn_end"], "what the browser says is newer"
            break


@pytest.mark.parametrize(
    "wrong",
    ["nonsense", "abc", "abc.", ".5", "abc.-5", "-5", "abc.1.5", "a b.5", "abc.1e3", "abc." + "9" * 99],
)
async def test_what_never_was_a_cursor_is_refused(ann: User, wrong: str) -> None:
    place = f"/api/conversations/{await begun(ann)}/events"
    refused(await ann.http.get(place, headers={"Last-Event-ID": wrong}), 400, "INVALID_REQUEST")
    refused(await ann.http.get(place, params={"after": wrong}), 400, "INVALID_REQUEST")


@pytest.mark.parametrize("which", ["of the future", "of another log"])
async def test_a_cursor_the_log_does_not_know_is_answered_with_how_the_turns_stand(
    ann: User, which: str
) -> None:
    conversation = await begun(ann)
    async with saying(ann, conversation, '[[failing_late {"said": "Half"}]]') as failed:
        await failed.over()
    async with saying(ann, conversation, '[[text {"said": "Well"}]]') as done:
        await done.over()
    async with saying(ann, conversation, '[[hang {"said": "Hm"}]]') as running:
        newest = await running.heard("text_delta")
        generation, _, offset = newest.id.partition(".")
        cursor = f"{generation}.{int(offset) + 1000}" if which == "of the future" else f"deadbeef.{offset}"
        async with listening(ann, conversation, cursor) as stream:
            resync = await stream.heard("resync")
            await abort(ann, conversation)
            await stream.heard("turn_end", turnId=newest.turn)
    assert resync.id == newest.id
    assert resync.data["conversationId"] == conversation
    assert [(turn["id"], turn["status"], turn.get("code")) for turn in resync.inner["turns"]] == [
        (failed.events[0].turn, "failed", "MODEL_UNAVAILABLE"),
        (done.events[0].turn, "done", None),
        (newest.turn, "running", None),
    ]
    assert stream.events[0] == resync
    assert stream.events[1:] == [event for event in running.events if _offset(event) > _offset(newest)]


async def test_the_end_of_the_token_ends_the_streams_and_not_the_turn(someone: Someone) -> None:
    ann = await someone("ann")
    short = User(ann.url, ann.name, ttl=2 - LEEWAY)
    conversation = await begun(ann)
    began = time.time()
    async with (
        short,
        listening(short, conversation) as everything,
        saying(short, conversation, '[[hang {"said": "Hm"}]]') as answer,
    ):
        await asyncio.gather(everything.over(5), answer.over(5))
    assert 0.9 < time.time() - began < 3
    assert types(answer.events) == ["conversation:user_message", "message_start", "text_delta", "error"]
    assert everything.events == answer.events
    farewell = answer.events[-1].inner
    assert (farewell["code"], farewell["status"]) == ("UNAUTHENTICATED", 401)
    assert farewell["message"] == "The token has expired. Sign in again and come back to hear the rest."
    async with listening(ann, conversation, answer.last) as again:
        await abort(ann, conversation)
        await again.heard("turn_end", turnId=answer.events[0].turn)


@pytest.fixture(scope="module")
def two_each(server: Instance, settings: dict[str, Any], folder: Path) -> Generator[Instance]:
    """Another front of the shared server, where a user may keep two connections open."""
    with Instance("serve", folder, "--no-worker", "--port", "0", **settings | {"sockets_per_user": 2}) as one:
        yield one


async def test_one_stream_too_many_is_refused_and_its_message_not_stored(
    two_each: Instance, someone: Someone
) -> None:
    ann, bob = await someone("ann", at=two_each), await someone("bob", at=two_each)
    conversation = await begun(ann)
    path = f"/conversations/{conversation}/messages"
    async with listening(ann, conversation), ann.socket():
        one_more = await ann.http.get(f"/api/conversations/{conversation}/events")
        refused(one_more, 429, "TOO_MANY_CONNECTIONS")
        assert int(one_more.headers["retry-after"]) >= 1
        refused(await ann.http.post(path, json={"content": "Not me"}), 429, "TOO_MANY_CONNECTIONS")
        async with saying(bob, await begun(bob), "And me?") as other:
            await other.over()
        patient = await ann.http.post(path, json={"content": "I wait"}, headers={"Prefer": "respond-async"})
        await ann.answered(patient.json())
    said = [m["content"] for m in (await ann.conversation(conversation))["messages"] if m["role"] == "user"]
    assert said == ["I wait"]

    async def again() -> bool:
        return (await ann.http.post(path, json={"content": "Now me"})).status_code == 200

    await eventually(again)  # once the server has seen that the others have left


async def test_refusals_keep_no_connection_counted(two_each: Instance, someone: Someone) -> None:
    ann = await someone("ann", at=two_each)
    conversation, nobodys = await begun(ann), "00000000-0000-4000-8000-000000000000"
    for _ in range(5):
        for name, content, code in (
            (nobodys, "Hello", "CONVERSATION_NOT_FOUND"),
            (conversation, " ", "MESSAGE_CONTENT_REQUIRED"),
        ):
            response = await ann.http.post(f"/conversations/{name}/messages", json={"content": content})
            assert response.json()["error"]["code"] == code
    async with saying(ann, conversation, "Hello") as stream:
        await stream.over()


async def test_the_conversation_of_another_is_forbidden_or_not_there(
    ann: User, bob: User, someone: Someone
) -> None:
    conversation = await begun(ann)
    stranger = await someone("eve", word("tenant"))
    path = f"/conversations/{conversation}/messages"
    body = {"content": "Let me in"}
    for headers in ({}, {"Prefer": "respond-async"}):
        refused(await bob.http.post(path, json=body, headers=headers), 403, "FORBIDDEN")
        refused(await stranger.http.post(path, json=body, headers=headers), 404, "CONVERSATION_NOT_FOUND")
    for other in (bob, stranger):
        for cursor in ({}, {"Last-Event-ID": "deadbeef.1"}):
            response = await other.http.get(f"/api/conversations/{conversation}/events", headers=cursor)
            refused(response, 404, "CONVERSATION_NOT_FOUND")
    assert (await ann.conversation(conversation))["messages"] == []
