"""Stopping and trying again, one upon the other: the right turn is stopped, and every end is told."""

from typing import Any
from uuid import UUID

import asyncpg

from tertulia.core.model import Owner
from tertulia.core.turns import Terminal
from tertulia.embedded import Services
from tertulia.events.log import SCRIPTS, EventLog
from tertulia.queue.outbox import Outbox
from tertulia.store.database import Database
from tertulia.valkey import Pipeline, connect
from tests.scenarios.conftest import word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import failure
from tests.support.observe import eventually


async def failed(user: User, content: str, session: str) -> dict[str, Any]:
    sent = await user.send(content, session)
    assert (await user.answered(sent))["status"] == "failed"
    return sent


async def running(user: User, gemini: ScriptedGemini, session: str) -> dict[str, Any]:
    """A message that is being answered, without an end, and whose model has been asked."""
    sent = await user.send(question := f"{word()} [[hang]]", session)

    async def reached() -> bool:
        return any(request.said[-1] == ("user", question) for request in list(gemini.requests))

    await eventually(reached)
    return sent


async def retry(user: User, sent: dict[str, Any]) -> None:
    assert (await user.http.post(f"/api/turns/{sent['turn_id']}/retry")).status_code == 202


async def test_an_abort_stops_what_is_running_and_not_an_older_turn_that_waits_to_be_tried_again(
    ann: User, gemini: ScriptedGemini
) -> None:
    gemini.script(failure(403))
    older = await failed(ann, f'{word()} [[text {{"said": "At last"}}]]', session := word("s"))
    newer = await running(ann, gemini, session)
    await retry(ann, older)
    answer = (await ann.http.post(f"/api/conversations/{newer['conversation_id']}/abort")).json()
    assert answer["status"] == "GENERATION_ABORTED"
    assert [(turn["id"], turn["status"]) for turn in answer["turns"]] == [(newer["turn_id"], "aborted")]
    state = await ann.answered(older)
    assert (state["status"], state["reply"]["content"]) == ("done", "At last")


async def test_what_a_failed_attempt_had_said_is_no_reply_of_a_retry_that_was_stopped_before_it_began(
    ann: User, gemini: ScriptedGemini
) -> None:
    older = await failed(ann, f'{word()} [[cut {{"said": "half of it"}}]]', session := word("s"))
    assert (await ann.state(older["message_id"]))["turns"][0]["partial"] == "half "
    newer = await running(ann, gemini, session)
    await retry(ann, older)
    address = f"/api/conversations/{older['conversation_id']}"
    assert (await ann.http.delete(address)).status_code == 200  # it stops all turns
    assert (await ann.http.post(f"{address}/restore")).status_code == 200
    assert (await ann.answered(newer))["status"] == "aborted"
    state = await ann.answered(older)
    assert (state["status"], state["reply"]) == ("aborted", None)
    history = await ann.conversation(older["conversation_id"])
    assert [message["role"] for message in history["messages"]] == ["user", "user"]


async def test_the_end_of_a_retry_stays_in_the_outbox_while_the_end_before_it_is_cleared(
    ann: User, gemini: ScriptedGemini, backends: Services, database: asyncpg.Connection
) -> None:
    """An end is cleared a moment after it was published. Meanwhile the turn may have ended again."""
    gemini.script(failure(403))
    sent = await failed(ann, "Hello?", word("s"))
    conversation, turn = UUID(sent["conversation_id"]), UUID(sent["turn_id"])
    ours = await Database.open(backends.database_url, 1)
    pipeline = Pipeline(client := connect(backends.redis_url), *SCRIPTS)
    outbox = Outbox(ours, EventLog(pipeline, 100))
    try:
        await outbox.send(Owner("acme", ann.name), conversation, turn, 1, 1, Terminal([], []))
        await database.execute(
            "UPDATE turns SET attempt = 2, terminal = '{}', ended_at = now() + interval '1 hour' WHERE id = $1",
            turn,
        )
        await outbox.drain()
        assert await database.fetchval("SELECT terminal::text FROM turns WHERE id = $1", turn) == "{}"
        await outbox.send(Owner("acme", ann.name), conversation, turn, 2, 2, Terminal([], []))
        await outbox.drain()
        assert await database.fetchval("SELECT terminal FROM turns WHERE id = $1", turn) is None
    finally:
        await pipeline.close()
        await client.aclose()
        await ours.close()
