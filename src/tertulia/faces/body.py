"""Reading what a client sent: strict JSON into a typed structure, or a 400 that says what is wrong."""

import hashlib
import json
import re
from functools import cache
from typing import Annotated, Any, TypeVar, get_args
from uuid import UUID

import msgspec
from litestar.params import Parameter

from tertulia.core.errors import InvalidRequest
from tertulia.store.keys import Key

T = TypeVar("T")

_SHOWN = 200

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def decode(body: bytes, kind: type[T]) -> T:
    """The body as `kind`; unknown fields, duplicate keys and everything that is no JSON are refused."""
    try:
        decoded = msgspec.json.decode(body, type=kind)
        if _may_repeat_a_key(body, kind):
            json.loads(body, object_pairs_hook=_no_duplicates)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The request does not fit: {shortened(str(error))}.") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest("The request body is not a JSON document that can be read.") from error
    return decoded


def shortened(text: str) -> str:
    """Enough of a text to recognize it by: what a client sent is not sent back at length."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _may_repeat_a_key(body: bytes, kind: type[Any]) -> bool:
    """A cheap look that is wrong only to the safe side: at an object in the body, or at a key written with escapes."""
    return b"\\u" in body or body.count(b"{") > 1 or any(body.count(name) > 1 for name in _quoted_names(kind))


@cache
def _quoted_names(kind: type[Any]) -> tuple[bytes, ...]:
    kinds: tuple[type[msgspec.Struct], ...] = get_args(kind) or (kind,)
    names = {field.encode_name for each in kinds for field in msgspec.structs.fields(each)}
    names |= {each.__struct_config__.tag_field or "" for each in kinds} - {""}
    return tuple(f'"{name}"'.encode() for name in names)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("duplicate key")


def uuid(text: str) -> UUID | None:
    """The UUID in its one usual form, or None."""
    return UUID(text) if _CANONICAL.fullmatch(text) else None


def key(route: str, header: str | None, body: bytes) -> Key | None:
    """The idempotency key of a request, with what tells whether a repeat is the same request."""
    if header is None:
        return None
    if not _KEY.fullmatch(header):
        raise InvalidRequest("An Idempotency-Key has 1 to 255 visible ASCII characters.")
    return Key(route, header, hashlib.sha256(body).digest())


IdempotencyKey = Annotated[
    str | None,
    Parameter(
        header="Idempotency-Key", description="a repeat with the same key is answered as the first was"
    ),
]
