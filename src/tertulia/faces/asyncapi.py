"""`/ws` in AsyncAPI 3: made from the structures that are sent and read there, so the two cannot differ."""

from typing import Any, get_args

import msgspec
from msgspec import Struct, defstruct
from msgspec.structs import fields

from tertulia import __version__
from tertulia.core import events
from tertulia.faces import frames

_REFERENCE = "#/components/schemas/{name}"

Json = dict[str, Any]

_CURSOR: Json = {"cursor": {"type": "string", "description": "how far one has read"}}


def document() -> Json:
    """The whole document."""
    said, answers, pushes = (get_args(union) for union in (frames.Frame, frames.Answer, events.Push))
    datas = get_args(events.Data)
    pushes = (*pushes, frames.Resync)
    _, schemas = msgspec.json.schema_components(
        [*said, *answers, *pushes, *datas, _envelope()], ref_template=_REFERENCE
    )
    client = {_tag(kind): _message(kind, _tag(kind), _ref(kind)) for kind in said}
    server = {
        **{f"answer.{_tag(kind)}": _message(kind, _tag(kind), _ref(kind)) for kind in answers},
        **{f"event.{kind.type}": _message(kind, kind.type, _event(kind)) for kind in datas},
        **{f"push.{_tag(kind)}": _message(kind, _tag(kind), _pushed(kind)) for kind in pushes},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Tertulia over WebSocket", "version": __version__, "description": _ABOUT},
        "defaultContentType": "application/json",
        "channels": {
            "ws": {
                "address": "/ws",
                "messages": {
                    **{f"client.{name}": message for name, message in client.items()},
                    **{f"server.{name}": message for name, message in server.items()},
                },
            }
        },
        "operations": {
            "listen": _operation("receive", "What a client may say.", [f"client.{name}" for name in client]),
            "tell": _operation("send", "What the server says.", [f"server.{name}" for name in server]),
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _envelope() -> type[Struct]:
    """An event of a session without its data, whose kinds only the type of the event tells apart."""
    parts = [field for field in fields(events.Event) if field.name != "data"]
    return defstruct(
        "Event",
        [(part.name, part.type) if part.required else (part.name, part.type, part.default) for part in parts],
        rename="camel",
    )


_ABOUT = """One connection for everything that happens to a user.

Sign in with `Authorization: Bearer …`, with the subprotocols `bearer` and the token, or with an `auth` frame
within ten seconds. A newer token may be sent at any time; the connection ends with the last one (code 4001).

What is addressed to the user is pushed at once; the events of a conversation come after `subscribe` with its
`sessionId`. A cursor says how far one has read: reconnect with it to get what came after, or `resync` when
that is gone."""


def _tag(kind: type[Struct]) -> str:
    return str(kind.__struct_config__.tag)


def _ref(kind: type[Struct]) -> Json:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}


def _message(kind: type[Struct], name: str, payload: Json) -> Json:
    return {"name": name, "summary": kind.__doc__ or name, "payload": payload}


def _event(kind: type[Struct]) -> Json:
    """An event as the log has it, of this type and with this data."""
    own: Json = {"type": {"const": getattr(kind, "type", "")}, "data": _ref(kind), **_CURSOR}
    return {"allOf": [_ref(_envelope()), {"type": "object", "properties": own, "required": [*own]}]}


def _pushed(kind: type[Struct]) -> Json:
    return {"allOf": [_ref(kind), {"type": "object", "properties": _CURSOR, "required": ["cursor"]}]}


def _operation(action: str, summary: str, messages: list[str]) -> Json:
    references = [{"$ref": f"#/channels/ws/messages/{name}"} for name in messages]
    return {
        "action": action,
        "summary": summary,
        "channel": {"$ref": "#/channels/ws"},
        "messages": references,
    }
