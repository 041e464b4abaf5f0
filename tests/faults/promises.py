"""The one promise: every accepted message has exactly one end, in order, and everybody sees it."""

from typing import Any

import msgspec

from tests.faults.listening import Listener
from tests.faults.world import Talk, until

_REPLIES = (
    "SELECT content::text FROM messages WHERE turn_id = $1 AND role = 'assistant' AND content_type = 'text'"
)
_ORDER = """
SELECT t.message_id::text FROM turns t LEFT JOIN messages m ON m.id = t.reply_id
 WHERE t.conversation_id = $1 ORDER BY coalesce(m.seq, t.trigger_seq)
"""


async def broken(
    talk: Talk,
    *others: Listener,
    status: str = "done",
    statuses: dict[str, str] | None = None,
    patience: float = 20,
) -> list[str]:
    """What was not kept of the promise, after every turn has ended (or should have)."""
    found: list[str] = []
    turns = [sent["turn_id"] for sent in talk.sent]
    for sent in talk.sent:
        wanted = (statuses or {}).get(sent["message_id"], status)
        found += await _stored(talk, sent, wanted, patience)
    for number, listener in enumerate((talk.listener, *others)):
        for turn in turns:
            try:
                await listener.ended(turn, patience)
            except AssertionError:
                found.append(f"listener {number} never heard of the end of {turn}")
        found += [f"listener {number}: {fault}" for fault in listener.faults(turns)]
        for sent in talk.sent:
            found += await _heard(talk, sent, listener, number)
    if not others and (rows := await talk.world.sql(_ORDER, talk.conversation)):
        found += _order([row[0] for row in rows], talk)
    await _outbox_is_empty(talk, found)
    return found


async def _stored(talk: Talk, sent: dict[str, Any], wanted: str, patience: float) -> list[str]:
    found: list[str] = []
    state = await talk.user.answered(sent, patience)
    name = sent["message_id"]
    if state["status"] != wanted or len(state["turns"]) != 1:
        found.append(f"{name} is {state['status']} in {len(state['turns'])} turns")
    replies = [msgspec.json.decode(row[0]) for row in await talk.world.sql(_REPLIES, sent["turn_id"])]
    expected = 1 if wanted == "done" else 0
    if len(replies) != expected and wanted != "aborted":
        found.append(f"{name} has {len(replies)} replies")
    told = state["reply"]["content"] if state.get("reply") else None
    if replies and told != replies[0]:
        found.append(f"{name}: the reply is {told!r} and {replies[0]!r}")
    return found


async def _heard(talk: Talk, sent: dict[str, Any], listener: Listener, number: int) -> list[str]:
    turn = sent["turn_id"]
    replies = [msgspec.json.decode(row[0]) for row in await talk.world.sql(_REPLIES, turn)]
    kept = replies[0] if replies else ""
    complete = [event["data"]["text"] for event in listener.of(turn) if event["type"] == "message_complete"]
    if listener.resynced and not complete:
        return []  # the text is read from the history after a resync
    if complete not in ([], [kept]):
        return [f"listener {number}: {turn} was completed as {complete}, and is {kept!r}"]
    if not complete and listener.from_the_start and listener.text(turn) != kept:
        return [f"listener {number}: the words {listener.text(turn)!r} are not {kept!r}"]
    return []


def words_of_last_attempt(talk: Talk, sent: dict[str, Any], reply: str) -> None:
    """Where Redis was well all the time, the deltas alone make the reply."""
    assert talk.listener.text(sent["turn_id"]) == reply


def _order(messages: list[str], talk: Talk) -> list[str]:
    accepted = [sent["message_id"] for sent in talk.sent]
    return [] if messages == accepted else [f"answered in the order {messages}, accepted as {accepted}"]


async def _outbox_is_empty(talk: Talk, found: list[str]) -> None:
    async def empty() -> bool:
        left = "SELECT count(*) FROM turns WHERE conversation_id = $1 AND terminal IS NOT NULL"
        return await talk.world.one(left, talk.conversation) == 0

    try:
        await until(empty, 5)
    except AssertionError:
        found.append("an end stays in the outbox")
