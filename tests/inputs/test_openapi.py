"""The description of the API is true: it is tried with good and bad values against the running server."""

import json
from typing import Any
from uuid import uuid4

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.client import User, token
from tests.support.instance import Instance
from tests.support.rows import Rows

TRUE = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
OPEN = {"GET /healthz", "GET /readyz", "GET /metrics"}
ENDLESS = "GET /api/conversations/{conversation_id}/events"
MAY_NAME_WHAT_IS_NOT_THERE = {"POST /api/messages", "POST /api/conversations", "POST /briefings"}
OPERATIONS = [
    "POST /api/messages",
    "GET /api/messages/{message_id}",
    "POST /api/turns/{turn_id}/retry",
    "GET /conversations/{agent_id}",
    "GET /conversations/{conversation_id}/messages",
    "POST /conversations/{conversation_id}/messages",
    "GET /api/conversations",
    "POST /api/conversations",
    "GET /api/conversations/{conversation_id}",
    "DELETE /api/conversations/{conversation_id}",
    ENDLESS,
    "POST /api/conversations/{conversation_id}/abort",
    "POST /api/conversations/{conversation_id}/restore",
    "GET /api/agents",
    "POST /api/agents",
    "GET /api/agents/{agent_id}",
    "PATCH /api/agents/{agent_id}",
    "DELETE /api/agents/{agent_id}",
    "GET /briefings",
    "POST /briefings",
    "GET /briefings/{briefing_id}",
    "DELETE /briefings/{briefing_id}",
    "PATCH /briefings/{briefing_id}/read",
    "POST /briefings/{briefing_id}/actions",
    "GET /api/notifications",
    "PATCH /api/notifications/{notification_id}/read",
    "GET /api/search",
    *sorted(OPEN),
]


@pytest.fixture(scope="module")
def document(server: Instance) -> dict[str, Any]:
    response = httpx.get(f"{server.url}/docs/openapi.json", trust_env=False)
    assert response.status_code == 200
    return response.json()


@pytest.fixture(scope="module")
def schema(server: Instance, document: dict[str, Any]) -> Any:
    loaded: Any = schemathesis.openapi.from_dict(json.loads(json.dumps(document)))
    loaded.config.update(base_url=server.url)
    return loaded


def described(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def operation(schema: Any, name: str) -> Any:
    method, path = name.split(" ")
    return schema[path][method]


def test_every_operation_is_tried_here(document: dict[str, Any]) -> None:
    assert set(described(document)) == set(OPERATIONS)


def test_every_operation_says_what_it_is_for_and_how_it_may_refuse(document: dict[str, Any]) -> None:
    for name, about in described(document).items():
        assert about["summary"], name
        assert about["description"], name
        if name in OPEN:
            assert about["security"] == [{}]
            continue
        assert {"400", "401", "429", "503"} <= set(about["responses"]), name
        named = "{" in name or name in MAY_NAME_WHAT_IS_NOT_THERE
        assert ("404" in about["responses"]) == named, name
        for status, response in about["responses"].items():
            if int(status) >= 400:
                media = response["content"]["application/json"]
                assert media["schema"] == {"$ref": "#/components/schemas/Refused"}, (name, status)
                for code, example in media["examples"].items():
                    assert example["value"]["error"]["code"] in response["description"], (name, status, code)


@pytest.mark.parametrize("name", OPERATIONS)
def test_answers_are_as_described_whatever_is_asked(name: str, schema: Any) -> None:
    """Ids are made up, so that a stream which would not end is never begun."""
    headers = {"Authorization": f"Bearer {token('fuzz', 'described', role='admin')}"}
    asked = operation(schema, name)
    cases = strategies.one_of(
        *(
            asked.as_strategy(generation_mode=mode)
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        )
    )

    @settings(
        max_examples=40,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def attempt(case: Any) -> None:
        case.validate_response(case.call(headers=headers), checks=TRUE)

    attempt()


async def test_answers_about_real_things_are_as_described(schema: Any, user: User, rows: Rows) -> None:
    done = await user.send('[[text {"said": "Hi"}]]')
    failed = await user.send('[[status {"code": 400}]]')
    await user.answered(done)
    await user.answered(failed)
    notification = uuid4()
    await rows.connection.execute(
        "INSERT INTO notifications (tenant, id, from_user_id, to_user_id, message)"
        " VALUES ($1, $2, 'ulla', 'ulla', 'x')",
        user.tenant,
        notification,
    )
    admin = User(user.url, "ada", user.tenant, role="admin")
    tried: set[str] = set()

    def ask(
        name: str, status: int, path: dict[str, str] | None = None, who: User = user, **given: Any
    ) -> Any:
        if "body" in given:
            given["media_type"] = "application/json"
        case = operation(schema, name).Case(path_parameters=path or {}, **given)
        response = case.call(headers={"Authorization": f"Bearer {who.token}"})
        assert response.status_code == status, (name, response.text)
        streamed = response.headers["content-type"] == ["text/event-stream; charset=utf-8"]
        checks = [check for check in TRUE if check is not response_schema_conformance or not streamed]
        case.validate_response(response, checks=checks)
        tried.add(name)
        return response

    conversation = {"conversation_id": done["conversation_id"]}
    turn, failed_turn = {"turn_id": done["turn_id"]}, {"turn_id": failed["turn_id"]}
    ask("GET /api/messages/{message_id}", 200, {"message_id": done["message_id"]})
    ask("GET /api/messages/{message_id}", 200, {"message_id": failed["message_id"]})
    ask("POST /api/turns/{turn_id}/retry", 409, turn)
    ask("POST /api/turns/{turn_id}/retry", 202, failed_turn)
    ask("POST /api/messages", 202, body={"content": "Hi"}, headers={"Idempotency-Key": "k"})
    ask("POST /api/messages", 409, body={"content": "Ho"}, headers={"Idempotency-Key": "k"})

    analyst = {"id": "analyst", "display_name": "数据分析师", "window": 20, "prompt": "Be brief."}
    ask("POST /api/agents", 403, body=analyst)
    ask("POST /api/agents", 201, who=admin, body=analyst)
    ask("POST /api/agents", 409, who=admin, body=analyst)
    ask("PATCH /api/agents/{agent_id}", 200, {"agent_id": "analyst"}, admin, body={"model": None})
    ask("GET /api/agents/{agent_id}", 200, {"agent_id": "analyst"})
    ask("GET /api/agents", 200)

    draft = {"user_id": "ulla", "agent_id": "analyst", "title": "代码返工率50%", "summary": "Up."}
    draft |= {"actions": [{"label": "Look", "action": "view_report"}], "context_data": {"rate": 0.5}}
    posted = ask("POST /briefings", 201, who=admin, body=draft | {"dedupe_key": "d"}).json()["id"]
    assert ask("POST /briefings", 200, who=admin, body=draft | {"dedupe_key": "d"}).json()["id"] == posted
    ask("POST /briefings", 403, body=draft)
    briefing = {"briefing_id": posted}
    ask("GET /briefings", 200, query={"status": "new", "limit": 1})
    ask("GET /briefings/{briefing_id}", 200, briefing)
    ask("PATCH /briefings/{briefing_id}/read", 200, briefing)
    ask("POST /briefings/{briefing_id}/actions", 200, briefing, body={"action": "view_report"})
    ask("POST /briefings/{briefing_id}/actions", 200, briefing, body={"action": "start_conversation"})
    ask("DELETE /briefings/{briefing_id}", 200, briefing)

    standing = ask("GET /conversations/{agent_id}", 200, {"agent_id": "analyst"}).json()["id"]
    ask("GET /conversations/{agent_id}", 200, {"agent_id": standing})
    ask("GET /conversations/{agent_id}", 403, {"agent_id": standing}, admin)
    said = {"content": '[[text {"said": "Hi"}]]'}
    at_once = "POST /conversations/{conversation_id}/messages"
    assert "event: turn_end" in ask(at_once, 200, {"conversation_id": standing}, body=said).text
    ask(at_once, 202, {"conversation_id": standing}, body=said, headers={"Prefer": "respond-async"})
    ask(at_once, 403, {"conversation_id": standing}, admin, body=said)
    page = ask("GET /conversations/{conversation_id}/messages", 200, {"conversation_id": standing})
    assert page.json()["messages"][0]["content_type"] == "briefing_card"

    ask("GET /api/conversations", 200, query={"limit": 1})
    ask("POST /api/conversations", 200, body={"agent_id": "analyst"})
    ask("POST /api/conversations", 201, body={"title": "A trip"})
    ask("GET /api/conversations/{conversation_id}", 200, {"conversation_id": standing})
    ask("GET /api/search", 200, query={"q": "Hi"})
    ask("GET /api/notifications", 200)
    ask("PATCH /api/notifications/{notification_id}/read", 200, {"notification_id": str(notification)})
    ask("POST /api/conversations/{conversation_id}/abort", 200, conversation)
    async with user.http.stream("GET", ENDLESS.split(" ")[1].format(**conversation)) as events:
        assert events.status_code == 200
        assert events.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert (await anext(events.aiter_lines())) == "retry: 2000"
        tried.add(ENDLESS)
    ask("DELETE /api/conversations/{conversation_id}", 200, conversation)
    ask("POST /api/conversations/{conversation_id}/restore", 200, conversation)
    ask("DELETE /api/agents/{agent_id}", 200, {"agent_id": "analyst"}, admin)
    for name in OPEN:
        ask(name, 200)
    await admin.http.aclose()
    assert tried == set(OPERATIONS)
