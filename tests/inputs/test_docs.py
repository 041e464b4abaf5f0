"""The pages that describe the API: whole, true to the code, and free of anything from elsewhere."""

import base64
import hashlib
import re
from typing import Any, get_args

import httpx
import pytest

from tertulia.core import events
from tertulia.faces import frames
from tests.support.client import User
from tests.support.instance import Instance


@pytest.fixture(scope="module")
def page(server: Instance) -> httpx.Response:
    return httpx.get(f"{server.url}/docs", trust_env=False)


@pytest.fixture(scope="module")
def document(server: Instance) -> dict[str, Any]:
    return httpx.get(f"{server.url}/docs/asyncapi.json", trust_env=False).json()


def test_the_page_is_for_everybody_and_loads_nothing_from_elsewhere(page: httpx.Response) -> None:
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert re.findall(r"https?://|//\w+\.", page.text) == []
    assert len(page.text.splitlines()) < 200


def test_the_page_may_run_its_own_script_and_style_and_no_other(page: httpx.Response) -> None:
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert not re.search(r"\son\w+=|style=|innerHTML|eval\(|localStorage|document\.cookie", page.text)


def test_the_page_is_not_part_of_the_description(server: Instance) -> None:
    paths = httpx.get(f"{server.url}/docs/openapi.json", trust_env=False).json()["paths"]
    assert not [path for path in paths if path.startswith("/docs")]


def test_every_frame_and_every_event_is_described(document: dict[str, Any]) -> None:
    messages = document["channels"]["ws"]["messages"]
    tags = {kind.__struct_config__.tag for kind in get_args(frames.Frame)}
    assert {name for name in messages if name.startswith("client.")} == {f"client.{tag}" for tag in tags}
    said = (
        {f"server.answer.{kind.__struct_config__.tag}" for kind in get_args(frames.Answer)}
        | {f"server.event.{kind.type}" for kind in get_args(events.Data)}
        | {f"server.push.{kind.__struct_config__.tag}" for kind in (*get_args(events.Push), frames.Resync)}
    )
    assert {name for name in messages if name.startswith("server.")} == said
    assert {
        "client.subscribe",
        "server.event.text_delta",
        "server.push.notification",
        "server.push.resync",
    } <= set(messages)


def test_every_reference_in_the_description_leads_somewhere(document: dict[str, Any]) -> None:
    found: list[str] = []

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            found.extend([part["$ref"]] if isinstance(part.get("$ref"), str) else [])
            for each in part.values():
                walk(each)
        elif isinstance(part, list):
            for each in part:
                walk(each)

    walk(document)
    assert found
    for reference in found:
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def _missing(frame: dict[str, Any], schema: dict[str, Any], schemas: dict[str, Any]) -> set[str]:
    """The fields of a frame that the schema does not know, and those that it wants and the frame lacks."""
    parts = [schemas[part["$ref"].rpartition("/")[2]] if "$ref" in part else part for part in schema["allOf"]]
    known = {name for part in parts for name in part["properties"]}
    wanted = {name for part in parts for name in part["required"]}
    return (set(frame) - known) | (wanted - set(frame))


async def test_frames_that_are_really_sent_have_the_fields_described(
    document: dict[str, Any], user: User
) -> None:
    messages, schemas = document["channels"]["ws"]["messages"], document["components"]["schemas"]
    async with user.socket() as socket:
        first = await user.send('[[text {"said": "One"}]]', "described")
        await socket.subscribe(await user.session_id(first), after="0.0")
        await socket.say(type="ping")
        await socket.say(type="message", content='[[text {"said": "Two"}]]', session_id="described")
        accepted = await socket.until("accepted")
        await socket.until("message", turn_id=accepted["turn_id"])
        while "message_complete" not in {frame["type"] for frame in socket.seen}:
            await socket.next()  # the session's log and the user's are told apart
    kinds: set[str] = set()
    for frame in socket.seen:
        event = "data" in frame and frame["type"] != "resync"
        pushed = "topic" in frame or frame["type"] == "resync"
        name = f"server.{'event' if event else 'push' if pushed else 'answer'}.{frame['type']}"
        schema = messages[name]["payload"]
        assert _missing(frame, schema if "allOf" in schema else {"allOf": [schema]}, schemas) == set(), name
        kinds.add(name)
    assert {
        "server.answer.connected",
        "server.answer.pong",
        "server.event.message_complete",
        "server.push.message",
        "server.push.resync",
    } <= kinds
