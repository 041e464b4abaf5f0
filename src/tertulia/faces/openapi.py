"""How routes describe themselves: bodies that we decode ourselves, and the errors that every route has."""

from dataclasses import dataclass
from typing import Any

import msgspec
from litestar.openapi.spec import OpenAPIMediaType, Operation, Reference, RequestBody, Schema


def takes(kind: type[Any]) -> type[Operation]:
    """An operation whose JSON body is `kind` (routes read the body as bytes, to be strict about it)."""
    described: dict[str, Any] = msgspec.json.schema(kind)
    definitions: dict[str, Any] = described.get("$defs", {})
    body: dict[str, Any] = definitions.get(kind.__name__, described)

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            self.request_body = RequestBody(
                required=True, content={"application/json": OpenAPIMediaType(schema=_schema(body))}
            )

    return Described


def _schema(body: dict[str, Any]) -> Schema | Reference:
    return Schema(
        type=body["type"],
        title=body.get("title"),
        description=body.get("description"),
        required=body.get("required") or None,
        properties={name: _property(part) for name, part in body["properties"].items()},
        additional_properties=False,
    )


def _property(part: dict[str, Any]) -> Schema:
    options = [Schema(type=option["type"]) for option in part.get("anyOf", [])]
    if options:
        return Schema(one_of=options, description=part.get("description"))
    return Schema(
        type=part.get("type"),
        description=part.get("description"),
        min_length=part.get("minLength"),
        max_length=part.get("maxLength"),
    )
