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
OPERATIONS = [
    "POST /api/messages",
    "GET /api/messages/{message_id}",
    "POST /api/turns/{turn_id}/retry",
    "GET /api/conversations/{conversation_id}",
    "DELETE /api/conversations/{conversation_id}",
    "POST /api/conversations/{conversation_id}/abort",
    "POST /api/conversations/{conversation_id}/restore",
    "GET /api/notifications",
    "PATCH /api/notifications/{notification_id}/read",
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
        assert ("404" in about["responses"]) == ("{" in name or name == "POST /api/messages"), name
        for status, response in about["responses"].items():
            if int(status) >= 400:
                media = response["content"]["application/json"]
                assert media["schema"] == {"$ref": "#/components/schemas/Refused"}, (name, status)
                for code, example in media["examples"].items():
                    assert example["value"]["error"]["code"] in response["description"], (name, status, code)


@pytest.mark.parametrize("name", OPERATIONS)
def test_answers_are_as_described_whatever_is_asked(name: str, schema: Any) -> None:
    headers = {"Authorization": f"Bearer {token('fuzz', 'described')}"}
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
    conversation = done["conversation_id"]
    asked: list[tuple[str, int, dict[str, str]]] = [
        ("GET /api/messages/{message_id}", 200, {"message_id": done["message_id"]}),
        ("GET /api/messages/{message_id}", 200, {"message_id": failed["message_id"]}),
        ("POST /api/turns/{turn_id}/retry", 409, {"turn_id": done["turn_id"]}),
        ("POST /api/turns/{turn_id}/retry", 202, {"turn_id": failed["turn_id"]}),
        ("GET /api/conversations/{conversation_id}", 200, {"conversation_id": conversation}),
        ("GET /api/conversations/{conversation_id}", 200, {"conversation_id": failed["conversation_id"]}),
        ("POST /api/conversations/{conversation_id}/abort", 200, {"conversation_id": conversation}),
        ("GET /api/notifications", 200, {}),
        ("PATCH /api/notifications/{notification_id}/read", 200, {"notification_id": str(notification)}),
        ("DELETE /api/conversations/{conversation_id}", 200, {"conversation_id": conversation}),
        ("POST /api/conversations/{conversation_id}/restore", 200, {"conversation_id": conversation}),
    ]
    for name, status, names in asked:
        case = operation(schema, name).Case(path_parameters=names)
        response = case.call(headers={"Authorization": f"Bearer {user.token}"})
        assert response.status_code == status, (name, response.text)
        case.validate_response(response, checks=TRUE)
