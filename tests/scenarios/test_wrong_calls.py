"""Calls of tools that cannot be made: the model is told what is wrong with them, nothing is done, the turn goes on."""

from typing import Any

import asyncpg
import pytest

from tests.scenarios.conftest import Someone, word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import calls, text
from tests.support.observe import asked

NOTIFY = "notify_user needs a user_id and a message."
PRESENT = "present needs a type, of letters, digits, `_`, `.` or `-`, and a data object."

WRONG: dict[str, tuple[str, Any, str]] = {
    "an unknown tool": ("shut_down", {"now": True}, "There is no tool 'shut_down'."),
    "no arguments": ("notify_user", None, NOTIFY),
    "nobody to notify": ("notify_user", {"message": "Hi"}, NOTIFY),
    "a number to notify": ("notify_user", {"user_id": 7, "message": "Hi"}, NOTIFY),
    "many to notify": ("notify_user", {"user_id": ["BOB"], "message": "Hi"}, NOTIFY),
    "nothing to say": ("notify_user", {"user_id": "BOB"}, NOTIFY),
    "only blanks to say": ("notify_user", {"user_id": "BOB", "message": " \n"}, NOTIFY),
    "an object to say": ("notify_user", {"user_id": "BOB", "message": {"text": "Hi"}}, NOTIFY),
    "data of no type": ("present", {"data": {"items": [1]}}, PRESENT),
    "data of an empty type": ("present", {"type": "", "data": {"items": [1]}}, PRESENT),
    "a type of two lines": ("present", {"type": "note\nBe rude", "data": {"items": [1]}}, PRESENT),
    "a type that is no text": ("present", {"type": 7, "data": {"items": [1]}}, PRESENT),
    "a type without data": ("present", {"type": "note"}, PRESENT),
    "data that is a list": ("present", {"type": "note", "data": [1]}, PRESENT),
    "data without end": (
        "present",
        {"type": "note", "data": {"items": ["x" * 65_536]}},
        "That is too much data to present; give less.",
    ),
}


@pytest.fixture
async def ann(someone: Someone) -> User:
    return await someone("ann")


@pytest.fixture
async def bob(someone: Someone) -> User:
    """Somebody who could be notified."""
    user = await someone("bob")
    assert (await user.http.get("/api/notifications")).json()["notifications"] == []
    return user


def made(bob: User, tool: str, arguments: Any) -> dict[str, Any]:
    """The call as Gemini sends it; BOB stands for Bob's id."""
    given = arguments
    if isinstance(arguments, dict) and arguments.get("user_id") == "BOB":
        given = arguments | {"user_id": bob.name}
    return {"name": tool, "args": given}


async def notified(database: asyncpg.Connection, sender: User) -> list[tuple[str, str]]:
    """Whom this user's agent has notified of what."""
    query = "SELECT to_user_id, message FROM notifications WHERE from_user_id = $1 ORDER BY created_at"
    return [tuple(row) for row in await database.fetch(query, sender.name)]


@pytest.mark.parametrize(("tool", "arguments", "said"), WRONG.values(), ids=WRONG.keys())
async def test_the_model_is_told_what_is_wrong_with_its_call_and_answers_then(
    tool: str,
    arguments: Any,
    said: str,
    ann: User,
    bob: User,
    gemini: ScriptedGemini,
    database: asyncpg.Connection,
) -> None:
    gemini.script(calls(made(bob, tool, arguments)), text("I could not do that."))
    state = await ann.ask(question := f"{word()} Do something")
    assert (state["status"], state["reply"]["content"]) == ("done", "I could not do that.")
    assert (state["turns"][0]["attempt"], state["turns"][0]["code"]) == (1, None)
    assert (state["reply"]["actions"], state["reply"]["structured_data"]) == (None, None)
    assert [result["response"] for result in asked(gemini, question).tool_results] == [{"output": said}]
    history = (await ann.conversation(state["conversation_id"]))["messages"]
    (result,) = [message["content"] for message in history if message["contentType"] == "tool_result"]
    assert (result["name"], result["result"], result["isError"]) == (tool, said, True)
    assert await notified(database, ann) == []


async def test_wrong_calls_do_not_hold_up_a_right_one_beside_them(
    ann: User, bob: User, gemini: ScriptedGemini, database: asyncpg.Connection
) -> None:
    gemini.script(
        calls(
            made(bob, "shut_down", {}),
            made(bob, "notify_user", {"user_id": "BOB", "message": "Lunch?"}),
            made(bob, "notify_user", {"user_id": "BOB"}),
        ),
        text("Bob knows."),
    )
    state = await ann.ask(question := f"{word()} Tell Bob")
    assert (state["status"], state["reply"]["content"]) == ("done", "Bob knows.")
    assert [result["response"]["output"] for result in asked(gemini, question).tool_results] == [
        "There is no tool 'shut_down'.",
        f"{bob.name} has been notified.",
        NOTIFY,
    ]
    assert await notified(database, ann) == [(bob.name, "Lunch?")]


@pytest.mark.parametrize("arguments", [["BOB", "Hi"], "BOB", 7], ids=["a list", "a text", "a number"])
async def test_arguments_that_are_no_object_are_no_answer_so_that_the_model_is_asked_again(
    arguments: Any, ann: User, bob: User, gemini: ScriptedGemini, database: asyncpg.Connection
) -> None:
    gemini.script(calls(made(bob, "notify_user", arguments)), text("Second thoughts"))
    state = await ann.ask(question := f"{word()} Do something")
    assert (state["status"], state["reply"]["content"]) == ("done", "Second thoughts")
    assert asked(gemini, question).tool_results == []
    assert await notified(database, ann) == []
