"""Characters that no text should have, from a model: the answer is kept and sent without them."""

from typing import Any

import pytest

from tests.scenarios.conftest import Someone, word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import Answer, call, event, text

NUL, HIGH, LOW = rb"\u0000", rb"\ud83d", rb"\ude00"
"""As they stand in the model's JSON: NUL, and the two halves of 😀."""

ANSWERS = [
    ("NUL", [b"one" + NUL + b" two"], "one two"),
    ("NUL alone in a chunk", [b"one", NUL, b" two"], "one two"),
    ("a pair in one chunk", [b"one " + HIGH + LOW], "one 😀"),
    ("a pair split over two chunks", [b"one " + HIGH, LOW + b" two"], "one 😀 two"),
    ("a pair split around a NUL", [b"one " + HIGH, NUL + LOW], "one 😀"),
    ("the first half alone", [b"one " + HIGH, b" two"], "one \ufffd two"),
    ("the second half alone", [b"one", LOW + b" two"], "one\ufffd two"),
    ("the first half twice", [HIGH, HIGH, LOW], "\ufffd😀"),
    ("the first half at the end", [b"one", HIGH], "one\ufffd"),
]


def spelled(*chunks: bytes) -> Answer:
    """An answer of these pieces of JSON text."""
    plain = [event([{"text": "@"}], finish="STOP" if chunk is chunks[-1] else None) for chunk in chunks]
    return Answer(tuple(each.replace(b"@", chunk) for each, chunk in zip(plain, chunks, strict=True)))


async def answered(user: User, content: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A message's state once its turn has ended, and what was heard of it meanwhile."""
    first = await user.send("Hello", session := word("s"))
    await user.answered(first)
    async with user.socket() as socket:
        await socket.subscribe(await user.session_id(first))
        await socket.until("subscribed")
        sent = await user.send(content, session)
        await socket.until("turn_end", turnId=sent["turn_id"])
    heard = [frame for frame in socket.seen if frame.get("turnId") == sent["turn_id"]]
    return await user.state(sent["message_id"]), heard


@pytest.mark.parametrize(("chunks", "said"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS])
async def test_an_answer_is_kept_and_sent_without_what_can_not_be_stored(
    ann: User, gemini: ScriptedGemini, chunks: list[bytes], said: str
) -> None:
    gemini.script(text(), spelled(*chunks))
    state, heard = await answered(ann, "Say something odd")
    assert (state["status"], state["turns"][0]["attempt"]) == ("done", 1)
    assert state["reply"]["content"] == said
    assert "".join(f["data"]["text"] for f in heard if f["type"] == "text_delta") == said
    assert [f["data"]["text"] for f in heard if f["type"] == "message_complete"] == [said]


async def test_the_arguments_of_a_tool_are_kept_and_used_without_what_can_not_be_stored(
    someone: Someone, gemini: ScriptedGemini
) -> None:
    ann, bob = await someone("ann"), await someone("bob")
    assert (await bob.http.get("/api/notifications")).json()["notifications"] == []
    odd = call("notify_user", {"user_id": bob.name, "message": "@"})
    gemini.script(
        text(),
        Answer((odd.pieces[0].replace(b"@", b"Lunch" + NUL + b" " + HIGH + LOW + b" at " + LOW),)),
        text("Told."),
    )
    state, heard = await answered(ann, "Tell Bob")
    listed = (await bob.http.get("/api/notifications")).json()["notifications"]
    assert (state["status"], state["turns"][0]["attempt"]) == ("done", 1)
    assert state["reply"]["content"] == "Told."
    assert [each["message"] for each in listed] == ["Lunch 😀 at \ufffd"]
    (used,) = [f["data"]["input"] for f in heard if f["type"] == "tool_use_stop"]
    assert used == {"user_id": bob.name, "message": "Lunch 😀 at \ufffd"}


async def test_structured_data_is_kept_without_what_can_not_be_stored(
    ann: User, gemini: ScriptedGemini
) -> None:
    odd = call("present", {"type": "repo_list", "data": {"items": [{"@": "@"}]}})
    gemini.script(text(), Answer((odd.pieces[0].replace(b"@", b"name" + NUL + HIGH),)), text("Found one."))
    state, _ = await answered(ann, "Search")
    assert (state["status"], state["turns"][0]["attempt"]) == ("done", 1)
    assert state["reply"]["structured_data"] == {
        "type": "repo_list",
        "items": [{"name\ufffd": "name\ufffd"}],
    }
