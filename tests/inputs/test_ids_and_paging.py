"""Ids, limits and cursors as nobody should write them."""

from uuid import UUID

import pytest

from tests.support.client import User
from tests.support.refusals import refused
from tests.support.rows import Unwritten

ROUTES = {
    "GET /api/messages/{}": "MESSAGE_NOT_FOUND",
    "POST /api/turns/{}/retry": "TURN_NOT_FOUND",
    "GET /api/conversations/{}": "CONVERSATION_NOT_FOUND",
    "DELETE /api/conversations/{}": "CONVERSATION_NOT_FOUND",
    "POST /api/conversations/{}/abort": "CONVERSATION_NOT_FOUND",
    "POST /api/conversations/{}/restore": "CONVERSATION_NOT_FOUND",
    "PATCH /api/notifications/{}/read": "NOTIFICATION_NOT_FOUND",
    "GET /api/conversations/{}/events": "CONVERSATION_NOT_FOUND",
    "GET /conversations/{}/messages": "AGENT_NOT_FOUND",
    "POST /conversations/{}/messages": "AGENT_NOT_FOUND",
    "GET /briefings/{}": "BRIEFING_NOT_FOUND",
    "DELETE /briefings/{}": "BRIEFING_NOT_FOUND",
    "PATCH /briefings/{}/read": "BRIEFING_NOT_FOUND",
    "POST /briefings/{}/actions": "BRIEFING_NOT_FOUND",
    "GET /api/agents/{}": "AGENT_NOT_FOUND",
    "PATCH /api/agents/{}": "AGENT_NOT_FOUND",
    "DELETE /api/agents/{}": "AGENT_NOT_FOUND",
    "GET /conversations/{}": "AGENT_NOT_FOUND",
}
BODIES = {
    "POST /conversations/{}/messages": {"content": "Hi"},
    "POST /briefings/{}/actions": {"action": "start_conversation"},
    "PATCH /api/agents/{}": {"prompt": "Be brief."},
}

NO_IDS = {
    "a word": "x",
    "an unknown id": "00000000-0000-4000-8000-000000000000",
    "the largest id": "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "an id without hyphens": "0" * 32,
    "an id in braces": "{00000000-0000-4000-8000-000000000000}",
    "a URN": "urn:uuid:00000000-0000-4000-8000-000000000000",
    "a letter too far": "00000000-0000-4000-8000-00000000000g",
    "full-width digits": "%EF%BC%90" * 8 + "-0000-4000-8000-000000000000",
    "NUL": "%00",
    "invalid UTF-8": "%FF",
    "line ends": "a%0D%0AX-Header:%20b",
    "a line separator": "%E2%80%A8",
    "10 kB": "A" * 10_000,
    "SQL": "'%20OR%201=1--",
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", NO_IDS.values(), ids=NO_IDS.keys())
async def test_what_is_no_id_of_anything_is_not_found(
    route: str, name: str, admin: User, unwritten: Unwritten
) -> None:
    method, path = route.format(name).split(" ")
    code = ROUTES[route]
    if " /conversations/{}" in route and name in (NO_IDS["an unknown id"], NO_IDS["the largest id"]):
        code = "CONVERSATION_NOT_FOUND"  # a UUID never names an agent
    async with unwritten():
        refused(await admin.http.request(method, path, json=BODIES.get(route)), 404, code)


@pytest.mark.parametrize(
    "path", ["..%2f..%2fetc%2fpasswd", "..%5c..%5cwin.ini", "%2e%2e%2fhealthz", "a/../../b"]
)
async def test_dots_and_slashes_lead_nowhere(path: str, user: User) -> None:
    for base in ("/api/messages/", "/api/conversations/", "/api/agents/", "/conversations/", "/docs/"):
        response = await user.http.get(base + path)
        assert response.status_code == 404
        assert "root:" not in response.text


async def test_an_id_in_capitals_means_the_same(user: User) -> None:
    sent = await user.send("Hi")
    await user.answered(sent)
    for path, name in (("messages", sent["message_id"]), ("conversations", sent["conversation_id"])):
        assert (await user.http.get(f"/api/{path}/{name.upper()}")).status_code == 200


@pytest.mark.parametrize(
    "limit", ["0", "-1", "201", "1000000000", "9" * 5000, "1.5", "x", "", "1e3", "0x10", "%00"]
)
async def test_a_limit_that_is_out_of_bounds_is_named(limit: str, user: User) -> None:
    for path in (
        "/api/notifications?",
        "/api/conversations?",
        f"/api/conversations/{UUID(int=0)}?",
        f"/conversations/{UUID(int=0)}/messages?",
        "/briefings?",
        "/api/search?q=a&",
    ):
        error = refused(await user.http.get(f"{path}limit={limit}"), 400, "INVALID_REQUEST")
        assert error["message"].startswith("limit: ")


@pytest.mark.parametrize("flag", ["maybe", "", "2", "%00"])
async def test_a_flag_that_is_neither_true_nor_false_is_named(flag: str, user: User) -> None:
    error = refused(await user.http.get(f"/api/notifications?unread={flag}"), 400, "INVALID_REQUEST")
    assert error["message"].startswith("unread: ")


@pytest.mark.parametrize(
    "cursor", ["x", "-1", "1.0", "+1", "", "%00", "%FF", "9" * 19, "%EF%BC%99", "1" * 10_000, "0x1"]
)
async def test_a_cursor_that_we_never_gave_is_refused(cursor: str, user: User) -> None:
    sent = await user.send("Hi")
    for path in (
        f"/api/conversations/{sent['conversation_id']}?before={cursor}",
        f"/api/conversations/{sent['conversation_id']}?after={cursor}",
        f"/conversations/{sent['conversation_id']}/messages?before={cursor}",
        f"/conversations/{sent['conversation_id']}/messages?after={cursor}",
        f"/api/notifications?cursor={cursor}",
        f"/api/conversations?cursor={cursor}",
        f"/briefings?cursor={cursor}",
    ):
        error = refused(await user.http.get(path), 400, "INVALID_REQUEST")
        assert error["message"] == "That cursor is not one of ours. Leave it out to begin at the newest."
    if cursor != "1.0":
        error = refused(await user.http.get(f"/api/search?q=a&cursor={cursor}"), 400, "INVALID_REQUEST")
        assert error["message"] == "That cursor is not one of ours. Leave it out to begin with the best."


@pytest.mark.parametrize(
    "cursor",
    [
        "1.",
        "-1.{}",
        "1.{}",
        "99999999999999999.{}",
        "1.5.{}",
        "1{}",
        " 1.{}",
        "1.{}0",
        "%EF%BC%91.{}",
        "1.%00",
    ],
)
async def test_a_cursor_of_the_list_of_conversations_is_a_time_and_an_id(cursor: str, user: User) -> None:
    response = await user.http.get("/api/conversations?cursor=" + cursor.format(UUID(int=0)))
    if cursor == "1.{}":
        assert response.json() == {"conversations": [], "next": None}
    else:
        refused(response, 400, "INVALID_REQUEST")


@pytest.mark.parametrize("cursor", ["-1", "10001", "99999", "1.0", "1" * 10_000])
async def test_a_search_goes_only_so_deep(cursor: str, user: User) -> None:
    refused(await user.http.get(f"/api/search?q=a&cursor={cursor}"), 400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "place",
    [
        "x",
        "-1",
        ".",
        "a.",
        "a.-1",
        "a.1.2",
        "a.99999999999999999999",
        "a b.1",
        "é1",
        "a.１",
        "x" * 10_000,
        "a.0x1",
    ],
)
async def test_a_place_in_a_stream_that_is_none_is_refused_before_anything_is_sent(
    place: str, user: User
) -> None:
    sent = await user.send("Hi")
    path = f"/api/conversations/{sent['conversation_id']}/events"
    refused(await user.http.get(path, headers={"Last-Event-ID": place.encode()}), 400, "INVALID_REQUEST")
    refused(await user.http.get(path, params={"after": place}), 400, "INVALID_REQUEST")


@pytest.mark.parametrize("place", ["00000000.999999999999999", "a.1", "garbage.0"])
async def test_a_place_of_another_time_or_another_log_is_answered_with_a_resync(
    place: str, user: User
) -> None:
    sent = await user.send("Hi")
    await user.answered(sent)
    path = f"/api/conversations/{sent['conversation_id']}/events"
    async with user.http.stream("GET", path, headers={"Last-Event-ID": place}) as response:
        lines = response.aiter_lines()
        assert (await anext(lines)).startswith("id: ")
        assert await anext(lines) == "event: resync"


async def test_cursors_beyond_the_ends_give_empty_pages(user: User) -> None:
    sent = await user.send("Hi")
    await user.answered(sent)
    for query in ({"before": "0"}, {"before": "1"}, {"after": "999999999999999999"}):
        page = await user.conversation(sent["conversation_id"], **query)
        assert (page["messages"], page["before"], page["after"]) == ([], None, None)


async def test_before_and_after_exclude_each_other(user: User) -> None:
    sent = await user.send("Hi")
    response = await user.http.get(f"/api/conversations/{sent['conversation_id']}?before=5&after=1")
    assert refused(response, 400, "INVALID_REQUEST")["message"] == "Give `before` or `after`, not both."


async def test_a_method_that_a_route_does_not_take_is_a_405_that_names_those_it_does(user: User) -> None:
    response = await user.http.put("/api/messages", json={"content": "Hi"})
    refused(response, 405, "METHOD_NOT_ALLOWED")
    assert "POST" in response.headers["allow"]


async def test_a_path_that_is_not_there_is_a_404_with_and_without_a_token(user: User) -> None:
    for headers in ({}, {"Authorization": ""}):
        for path in ("/api", "/api/message", "/v0/x", "/api/messages/a/b", "/.env", "/" + "a" * 20_000):
            refused(await user.http.get(path, headers=headers), 404, "NOT_FOUND")
