"""How routes describe themselves: bodies that we decode ourselves, and the errors they may answer with."""

from dataclasses import dataclass
from typing import Any

import msgspec
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example, OpenAPIMediaType, Operation, Reference, RequestBody, Schema
from msgspec import Struct

from tertulia.core import errors
from tertulia.core.statuses import http_status

Kinds = tuple[type[errors.TertuliaError], ...]

ANYBODY: list[dict[str, list[str]]] = [{}]  # the security of a route that needs no token

BODY: Kinds = (errors.BodyTooLarge, errors.UnsupportedMediaType)  # of a route that takes one
_ALWAYS: Kinds = (errors.InvalidRequest, errors.Unauthenticated, errors.TooManyRequests, errors.Unavailable)


class Refusal(Struct, frozen=True):
    """Why: `code` is for programs and stays the same, `message` is for people."""

    code: str
    message: str


class Refused(Struct, frozen=True):
    """What every error looks like."""

    error: Refusal


def refuses(*kinds: type[errors.TertuliaError]) -> dict[int, ResponseSpec]:
    """The errors of a route that needs a token: these, and those that every such route has."""
    by_status: dict[int, list[type[errors.TertuliaError]]] = {}
    for kind in (*_ALWAYS, *kinds):
        by_status.setdefault(http_status(kind()), []).append(kind)
    return {status: _response(by_status[status]) for status in sorted(by_status)}


def _response(kinds: list[type[errors.TertuliaError]]) -> ResponseSpec:
    return ResponseSpec(
        data_container=Refused,
        description="\n".join(f"`{kind.code}`: {kind.message}" for kind in kinds),
        generate_examples=False,
        examples=[
            Example(summary=kind.code, value={"error": {"code": kind.code, "message": kind.message}})
            for kind in kinds
        ],
    )


def takes(kind: type[Any], example: dict[str, Any], *, required: bool = True) -> type[Operation]:
    """An operation whose JSON body is `kind` (routes read the body as bytes, to be strict about it)."""
    described: dict[str, Any] = msgspec.json.schema(kind)
    body: dict[str, Any] = described.get("$defs", {}).get(kind.__name__, described)

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            media = OpenAPIMediaType(schema=_schema(body), example=example)
            self.request_body = RequestBody(required=required, content={"application/json": media})

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
    options = [_property(option) for option in part.get("anyOf", [])]
    if options:
        return Schema(one_of=options, description=part.get("description"))
    return Schema(
        type=part.get("type"),
        description=part.get("description"),
        min_length=part.get("minLength"),
        max_length=part.get("maxLength"),
        pattern=part.get("pattern"),
    )
