"""Stopping an answer, deleting a conversation, and changing one's mind."""

import asyncio
import time
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from redis.asyncio import Redis

from tests.scenarios.conftest import Someone, word
from tests.support.client import Socket, User
from tests.support.gemini import Recorded, ScriptedGemini
from tests.support.instance import Instance
from tests.support.observe import asked, eventually, logged


async def talking(user: User, socket: Socket, session: str) -> tuple[dict[str, Any], str]:
    """A message whose answer never ends, and has begun; and its words."""
    first = await user.send("Hello", session)
    await user.answered(first)
    await socket.subscribe(await user.session_id(first))
    await socket.until("subscribed")
    sent = await user.send(said := f"{word()} [[endless]]", session)
    for _ in range(3):
        await socket.until("text_delta")
    return sent, said


async def hung_up(gemini: ScriptedGemini, said: str) -> float:
    """When our side closed the connection to the model."""

    async def look() -> Recorded | None:
        request = asked(gemini, said)
        return request if request.disconnected_at else None

    at = (await eventually(look)).disconnected_at
    assert at is not None
    return at


async def abort(user: User, sent: dict[str, Any]) -> dict[str, Any]:
    response = await user.http.post(f"/api/conversations/{sent['conversation_id']}/abort")
    assert response.status_code == 200, response.text
    return response.json()


async def test_an_abort_ends_the_answer_keeps_what_was_said_and_hangs_up_on_the_model(
    ann: User, gemini: ScriptedGemini
) -> None:
    async with ann.socket() as socket:
        sent, said = await talking(ann, socket, word("s"))
        began = time.monotonic()
        answer = await abort(ann, sent)
        hung = await hung_up(gemini, said)
        end = await socket.until("turn_end")
    spoken = "".join(
        f["data"]["text"] for f in socket.seen if f["type"] == "text_delta" and f["turnId"] == sent["turn_id"]
    )
    history = await ann.conversation(sent["conversation_id"])
    assert hung - began < 1
    assert answer["status"] == "GENERATION_ABORTED"
    assert [(turn["id"], turn["status"]) for turn in answer["turns"]] == [(sent["turn_id"], "aborted")]
    assert (end["data"]["status"], end["data"]["code"]) == ("aborted", "GENERATION_ABORTED")
    assert history["messages"][-1]["role"] == "assistant"
    assert history["messages"][-1]["content"] == spoken
    assert spoken.startswith("and and ")
    assert history["turns"][-1]["code"] == "GENERATION_ABORTED"
    assert "message_complete" not in [f["type"] for f in socket.seen if f.get("turnId") == sent["turn_id"]]


async def test_an_abort_can_be_repeated_and_one_with_nothing_to_stop_says_so(ann: User) -> None:
    async with ann.socket() as socket:
        sent, _ = await talking(ann, socket, word("s"))
        both = await asyncio.gather(abort(ann, sent), abort(ann, sent))
    assert "GENERATION_ABORTED" in {answer["status"] for answer in both}
    assert await abort(ann, sent) == {"status": "NOTHING_TO_ABORT", "turns": []}
    assert (await ann.state(sent["message_id"]))["status"] == "aborted"


async def test_a_message_queued_behind_an_aborted_one_is_answered_next(
    ann: User, gemini: ScriptedGemini
) -> None:
    async with ann.socket() as socket:
        sent, _ = await talking(ann, socket, session := word("s"))
        behind = await ann.send(question := f'{word()} [[text {{"said": "My turn"}}]]', session)
        await abort(ann, sent)
        state = await ann.answered(behind)
    assert (state["status"], state["reply"]["content"]) == ("done", "My turn")
    shown = asked(gemini, question).said
    assert [role for role, _ in shown] == ["user", "model", "user", "model", "user"]
    assert shown[3][1].startswith("and and")


async def test_an_aborted_turn_can_be_tried_again_and_its_words_make_room(
    strict: Instance, someone: Someone, gemini: ScriptedGemini
) -> None:
    ann = await someone("ann", at=strict)
    sent = await ann.send(
        f'{word()} [[text {{"said": "slow words here", "chunks": 3, "delay": 0.4}}]]', word("s")
    )

    async def started() -> bool:
        return (await ann.state(sent["message_id"]))["status"] == "running"

    await eventually(started)
    await abort(ann, sent)
    assert (await ann.state(sent["message_id"]))["status"] == "aborted"
    assert (await ann.http.post(f"/api/turns/{sent['turn_id']}/retry")).status_code == 202
    state = await ann.answered(sent)
    history = await ann.conversation(sent["conversation_id"])
    assert (state["status"], state["reply"]["content"]) == ("done", "slow words here")
    assert [message["content"] for message in history["messages"]][1:] == ["slow words here"]


async def test_nobody_stops_or_deletes_the_conversation_of_another(ann: User, bob: User) -> None:
    async with ann.socket() as socket:
        sent, _ = await talking(ann, socket, word("s"))
        name = sent["conversation_id"]
        for request in (
            bob.http.post(f"/api/conversations/{name}/abort"),
            bob.http.delete(f"/api/conversations/{name}"),
            bob.http.post(f"/api/conversations/{name}/restore"),
        ):
            response = await request
            assert (response.status_code, response.json()["error"]["code"]) == (404, "CONVERSATION_NOT_FOUND")
        assert (await ann.state(sent["message_id"]))["status"] == "running"
        await abort(ann, sent)


@pytest.mark.scenario("003", "Delete conversation")
async def test_a_deletion_hides_at_once_ends_the_answer_and_is_logged(
    strict: Instance, someone: Someone, gemini: ScriptedGemini
) -> None:
    ann = await someone("ann", at=strict)
    async with ann.socket() as socket:
        sent, said = await talking(ann, socket, word("s"))
        name = sent["conversation_id"]
        began = time.monotonic()
        response = await ann.http.delete(f"/api/conversations/{name}")
        assert (response.status_code, response.json()["status"]) == (200, "deleted")
        assert response.json()["restorableForSeconds"] == 1.5
        assert (await ann.http.get(f"/api/conversations/{name}")).status_code == 404
        assert (await ann.http.get(f"/api/messages/{sent['message_id']}")).status_code == 404
        assert (await ann.http.delete(f"/api/conversations/{name}")).status_code == 404
        assert await hung_up(gemini, said) - began < 1
        assert (await socket.until("turn_end"))["data"]["status"] == "aborted"
    line = await logged(strict, "context_deleted", conversation=name)
    assert (line["reason"], line["tenant"], line["user"]) == ("deleted", "acme", ann.name)


async def test_a_deleted_conversation_can_be_brought_back_for_a_while(
    strict: Instance, someone: Someone
) -> None:
    ann = await someone("ann", at=strict)
    sent = await ann.send('[[text {"said": "Keep me"}]]', session := word("s"))
    await ann.answered(sent)
    address = f"/api/conversations/{sent['conversation_id']}"
    await ann.http.delete(address)
    restored = await ann.http.post(f"{address}/restore")
    assert (restored.status_code, restored.json()) == (200, {"status": "restored"})
    history = await ann.conversation(sent["conversation_id"])
    assert [message["content"] for message in history["messages"]][1:] == ["Keep me"]
    again = await ann.send("Still there?", session)
    assert again["conversation_id"] == sent["conversation_id"]
    assert (await ann.http.post(f"{address}/restore")).status_code == 404


async def test_what_was_deleted_is_erased_after_a_while_and_only_ids_remain(
    strict: Instance, strict_settings: dict[str, Any], someone: Someone, strict_database: asyncpg.Connection
) -> None:
    ann = await someone("ann", at=strict)
    sent = await ann.send("Forget me", session := word("s"))
    await ann.answered(sent)
    name = UUID(sent["conversation_id"])

    async def rows(table: str, column: str = "conversation_id") -> int:
        return await strict_database.fetchval(f"SELECT count(*) FROM {table} WHERE {column} = $1", name)

    assert [await rows("conversations", "id"), await rows("messages"), await rows("turns")] == [1, 2, 1]
    await ann.http.delete(f"/api/conversations/{name}")
    await logged(strict, "conversation erased", conversation=str(name))
    assert [await rows("conversations", "id"), await rows("messages"), await rows("turns")] == [0, 0, 0]
    assert (await ann.http.post(f"/api/conversations/{name}/restore")).status_code == 404
    assert await strict_database.fetch(
        "SELECT tenant, user_id, action, subject FROM audit WHERE subject = $1", name
    ) == [("acme", ann.name, "conversation.deleted", name)]
    async with Redis.from_url(strict_settings["redis_url"], decode_responses=True) as valkey:

        async def left() -> bool:
            return await valkey.keys(f"*{name}*:events") == []

        assert await eventually(left)
    anew = await ann.send("Who are you?", session)
    assert anew["conversation_id"] != str(name)
    assert len((await ann.conversation(anew["conversation_id"]))["messages"]) == 1


@pytest.mark.scenario("003", "Delete conversation")
async def test_a_conversation_of_the_same_handle_begins_empty_after_a_deletion(
    ann: User, gemini: ScriptedGemini
) -> None:
    session = word("s")
    sent = await ann.send("The number is 42", session)
    await ann.answered(sent)
    await ann.http.delete(f"/api/conversations/{sent['conversation_id']}")
    await ann.ask(question := f"{word()} Which number?", session)
    assert asked(gemini, question).said == [("user", question)]
    taken = await ann.http.post(f"/api/conversations/{sent['conversation_id']}/restore")
    assert (taken.status_code, taken.json()["error"]["code"]) == (409, "CONFLICT")
