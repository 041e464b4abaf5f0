"""The description of the API is true: what it says is tried, with good and bad values, against the running server."""

import json
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.client import User, token
from tests.support.instance import Instance

TRUE = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
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
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
]


@pytest.fixture(scope="module")
def document(server: Instance) -> dict[str, Any]:
    response = httpx.get(f"{server.url}/docs/openapi.json", trust_env=False)
    assert response.status_code == 200
    return response.json()


def described(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_the_operations_described_are_those_tried_here(document: dict[str, Any]) -> None:
    assert set(described(document)) >= set(OPERATIONS)


def tried(server: Instance, document: dict[str, Any], name: str, headers: dict[str, str], examples: int) -> None:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.base_url = server.url
    method, path = name.split(" ")
    operation = schema[path][method]

    @settings(
        max_examples=examples, derandomize=True, deadline=None, database=None,
        phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @schemathesis.pytest.given_case(operation) if False else _given(operation)
    def attempt(case: Any) -> None:
        response = case.call(headers=headers)
        case.validate_response(response, checks=TRUE)

    attempt()


def _given(operation: Any) -> Any:
    from hypothesis import given, strategies

    modes = schemathesis.GenerationMode
    cases = strategies.one_of(
        operation.as_strategy(generation_mode=modes.POSITIVE), operation.as_strategy(generation_mode=modes.NEGATIVE)
    )
    return given(case=cases)
