"""Bodies and parameters that fit no route: each is refused with its code, and leaves nothing behind."""

from typing import Any
from uuid import UUID

import pytest

from tests.inputs.test_json import UNFITTING, UNREADABLE
from tests.support.client import User
from tests.support.refusals import refused
from tests.support.rows import Unwritten

ANY = UUID(int=0)
ROUTES = [
    "POST /api/conversations",
    "POST /api/agents",
    "PATCH /api/agents/assistant",
    "POST /briefings",
    f"POST /briefings/{ANY}/actions",
    f"POST /conversations/{ANY}/messages",
]

AGENT = {"id": "new", "display_name": "New"}
AGENTS: dict[str, Any] = {
    "no name": {"display_name": ""},
    "a blank name": {"display_name": " \u3000"},
    "a long name": {"display_name": "你" * 101},
    "NUL in a name": {"display_name": "a\x00b"},
    "an unknown kind": {"kind": "boss"},
    "a long prompt": {"prompt": "a" * 20_001},
    "NUL in a prompt": {"prompt": "a\x00b"},
    "no prompt": {"prompt": None},
    "a model without a provider": {"model": "gemini"},
    "a model with a space": {"model": "a:b c"},
    "a model with a line end": {"model": "a:b\n"},
    "no window at all": {"window": 0},
    "a window below nothing": {"window": -1},
    "a wide window": {"window": 1001},
    "a window in words": {"window": "20"},
    "half a message": {"window": 1.5},
    "a window of 30 digits": {"window": 10**30},
    "no tokens": {"context_tokens": 0},
    "too many tokens": {"context_tokens": 10_000_001},
    "an unknown strategy": {"strategy": "sometimes"},
    "a tenant": {"tenant": ""},
}
IDS = ["", " ", "a b", "-a", ".a", "a" * 65, "a/b", "a\x00", "a\n", "😀", str(ANY), "0" * 32, None, 5]

DRAFT = {"user_id": "ulla", "agent_id": "assistant", "title": "Up", "summary": "It goes up."}
DRAFTS: dict[str, Any] = {
    "no title": {"title": ""},
    "a blank title": {"title": " \u3000\n"},
    "a long title": {"title": "你" * 101},
    "NUL in a title": {"title": "a\x00b"},
    "null as title": {"title": None},
    "no summary": {"summary": ""},
    "a long summary": {"summary": "a" * 5001},
    "NUL in a summary": {"summary": "\x00"},
    "no impact": {"impact": ""},
    "a long impact": {"impact": "a" * 5001},
    "an unknown priority": {"priority": "P3"},
    "a priority in small letters": {"priority": "p0"},
    "an unknown type": {"briefing_type": "gossip"},
    "no reader": {"user_id": ""},
    "a long reader": {"user_id": "a" * 201},
    "NUL in a reader": {"user_id": "a\x00b"},
    "no agent": {"agent_id": None},
    "actions that are none": {"actions": ["start_conversation"]},
    "an unknown action": {"actions": [{"label": "Go", "action": "explode"}]},
    "an action without a label": {"actions": [{"label": "", "action": "custom"}]},
    "NUL in a label": {"actions": [{"label": "a\x00", "action": "custom"}]},
    "21 actions": {"actions": [{"label": "Go", "action": "custom"}] * 21},
    "NUL in an action's data": {"actions": [{"label": "Go", "action": "custom", "data": {"a": "\x00"}}]},
    "NUL as a key in an action's data": {
        "actions": [{"label": "Go", "action": "custom", "data": {"\x00": 1}}]
    },
    "context that is a list": {"context_data": []},
    "much context": {"context_data": {"a": "b" * 70_000}},
    "NUL in the context": {"context_data": {"a": ["\x00"]}},
    "an importance in words": {"importance_score": "high"},
    "no key": {"dedupe_key": ""},
    "a long key": {"dedupe_key": "a" * 201},
    "NUL in a key": {"dedupe_key": "a\x00b"},
    "a tenant": {"tenant": "other"},
    "an author": {"posted_by": "bob"},
}

CONVERSATIONS: dict[str, Any] = {
    "no title": {"title": ""},
    "a blank title": {"title": "\u3164\u200b"},
    "a long title": {"title": "你" * 51},
    "NUL in a title": {"title": "a\x00b"},
    "a number as title": {"title": 5},
    "no name": {"session_id": ""},
    "a long name": {"session_id": "a" * 201},
    "a line end in a name": {"session_id": "a\nb"},
    "a standing one with a name": {"agent_id": "assistant", "session_id": "a"},
    "a standing one with a title": {"agent_id": "assistant", "title": "a"},
    "somebody else": {"user_id": "bob"},
}
NO_AGENTS = ["nobody", "", "Assistant", "assistant ", "a\x00b", "😀" * 1000, str(ANY), "'; --"]


@pytest.mark.parametrize("route", ROUTES)
async def test_what_is_no_json_or_does_not_fit_is_refused_by_every_route(
    route: str, admin: User, unwritten: Unwritten
) -> None:
    method, path = route.split(" ")
    async with unwritten():
        for name, body in (UNREADABLE | UNFITTING).items():
            if name == "no content":
                continue  # an object without fields fits where none is asked for
            response = await admin.http.request(method, path, content=body)
            assert response.status_code == 400, name
            refused(response, 400, "INVALID_REQUEST")
        refused(await admin.http.request(method, path, content=b" " * 1_048_577), 413, "BODY_TOO_LARGE")


@pytest.mark.parametrize("wrong", AGENTS.values(), ids=AGENTS.keys())
async def test_an_agent_that_could_not_work_is_not_made(
    wrong: dict[str, Any], admin: User, unwritten: Unwritten
) -> None:
    async with unwritten():
        refused(await admin.http.post("/api/agents", json=AGENT | wrong), 400, "INVALID_REQUEST")
        refused(await admin.http.patch("/api/agents/assistant", json=wrong), 400, "INVALID_REQUEST")


async def test_an_agent_has_a_name_that_fits_into_an_address(admin: User, unwritten: Unwritten) -> None:
    async with unwritten():
        for name in IDS:
            refused(await admin.http.post("/api/agents", json=AGENT | {"id": name}), 400, "INVALID_REQUEST")
        refused(await admin.http.patch("/api/agents/assistant", json={"id": "new"}), 400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "part",
    [
        '"context_data": {"a": 1, "a": 2}',
        '"context_data": {"a": {"b": 1, "b": 2}}',
        '"actions": [{"label": "a", "label": "b", "action": "custom"}]',
        '"actions": [{"label": "a", "action": "custom", "data": {"c": 1, "c": 2}}]',
        '"title": "a", "title": "b"',
        '"title": "a", "\\u0074itle": "b"',
    ],
)
async def test_a_key_that_comes_twice_is_refused_however_deep(
    part: str, admin: User, unwritten: Unwritten
) -> None:
    body = f'{{"user_id": "ulla", "agent_id": "assistant", "summary": "It goes up.", {part}}}'
    if '"title"' not in part:
        body = body.replace('"summary"', '"title": "Up", "summary"')
    async with unwritten():
        response = await admin.http.post("/briefings", content=body)
    refused(response, 400, "INVALID_REQUEST")


@pytest.mark.parametrize("wrong", DRAFTS.values(), ids=DRAFTS.keys())
async def test_a_briefing_that_could_not_be_read_is_not_posted(
    wrong: dict[str, Any], admin: User, unwritten: Unwritten
) -> None:
    async with unwritten():
        refused(await admin.http.post("/briefings", json=DRAFT | wrong), 400, "INVALID_REQUEST")


@pytest.mark.parametrize("score", [b"NaN", b"1e999", b"-Infinity"])
async def test_an_importance_is_a_number(score: bytes, admin: User, unwritten: Unwritten) -> None:
    body = (
        b'{"user_id": "ulla", "agent_id": "assistant", "title": "a", "summary": "b", "importance_score": %b}'
    )
    async with unwritten():
        refused(await admin.http.post("/briefings", content=body % score), 400, "INVALID_REQUEST")


async def test_a_briefing_is_from_an_agent_and_for_a_user_who_are_there(
    admin: User, unwritten: Unwritten
) -> None:
    async with unwritten():
        for agent in NO_AGENTS:
            refused(
                await admin.http.post("/briefings", json=DRAFT | {"agent_id": agent}), 404, "AGENT_NOT_FOUND"
            )
        refused(await admin.http.post("/briefings", json=DRAFT | {"user_id": "x"}), 404, "USER_NOT_FOUND")


@pytest.mark.parametrize("wrong", CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
async def test_a_conversation_that_could_not_be_named_is_not_begun(
    wrong: dict[str, Any], user: User, unwritten: Unwritten
) -> None:
    async with unwritten():
        refused(await user.http.post("/api/conversations", json=wrong), 400, "INVALID_REQUEST")


async def test_nobody_talks_with_an_agent_that_is_not_there(user: User, unwritten: Unwritten) -> None:
    conversation = (await user.http.get("/conversations/assistant")).json()["id"]
    async with unwritten():
        for agent in NO_AGENTS:
            given = {"agent_id": agent}
            refused(await user.http.post("/api/conversations", json=given), 404, "AGENT_NOT_FOUND")
            said = await user.http.post(
                f"/conversations/{conversation}/messages", json=given | {"content": "Hi"}
            )
            refused(said, 404, "AGENT_NOT_FOUND")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "MESSAGE_CONTENT_REQUIRED"),
        (" \u3000\n", "MESSAGE_CONTENT_REQUIRED"),
        ("\u3164\u200b\u2060\ufeff", "MESSAGE_CONTENT_REQUIRED"),
        ("你" * 10_001, "MESSAGE_TOO_LONG"),
        ("a\x00b", "INVALID_REQUEST"),
    ],
)
async def test_what_is_no_message_is_refused_before_a_stream_begins(
    content: str, code: str, user: User, unwritten: Unwritten
) -> None:
    conversation = (await user.http.get("/conversations/assistant")).json()["id"]
    async with unwritten():
        for headers in ({}, {"Prefer": "respond-async"}):
            path = f"/conversations/{conversation}/messages"
            refused(await user.http.post(path, json={"content": content}, headers=headers), 400, code)


@pytest.mark.parametrize("action", ["explode", "", None, "START_CONVERSATION", ["dismiss"], "dismiss\x00"])
async def test_an_action_that_there_is_not_is_refused(
    action: Any, user: User, admin: User, unwritten: Unwritten
) -> None:
    posted = (await admin.http.post("/briefings", json=DRAFT)).json()["id"]
    path = f"/briefings/{posted}/actions"
    async with unwritten():
        refused(await user.http.post(path, json={"action": action}), 400, "INVALID_REQUEST")
        refused(await user.http.post(path, json={"action": "custom"}), 400, "ACTION_NOT_OFFERED")
    assert (await user.http.get(f"/briefings/{posted}")).json()["status"] == "new"


@pytest.mark.parametrize("query", ["", "q=", "q=%20%E3%80%80", "q=" + "a" * 201, "q=a%00b", "query=a"])
async def test_a_search_for_nothing_or_for_too_much_is_refused(query: str, user: User) -> None:
    error = refused(await user.http.get(f"/api/search?{query}"), 400, "INVALID_REQUEST")
    assert error["message"].startswith("q: " if query.startswith("q=") else "")


@pytest.mark.parametrize(
    "words",
    ["a & | !b", "<->", ":*", "'", "\\", "''; DROP TABLE search; --", "%", "\ufffd", "=", "你 & 好:*", "!!!"],
)
async def test_no_search_is_a_query_language(words: str, user: User) -> None:
    response = await user.http.get("/api/search", params={"q": words})
    assert response.json() == {"results": [], "next": None}


@pytest.mark.parametrize("status", ["", "unread", "NEW", "%00", "new,read"])
async def test_a_status_that_no_briefing_has_is_refused(status: str, user: User) -> None:
    refused(await user.http.get(f"/briefings?status={status}"), 400, "INVALID_REQUEST")
