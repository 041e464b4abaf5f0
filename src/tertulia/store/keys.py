"""Idempotency keys: the first request with a key is carried out, a repeat gets what the first one got."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from tertulia.core.errors import IdempotencyConflict
from tertulia.core.model import Owner
from tertulia.store.database import Session

Made = TypeVar("Made", bound=Struct)


class Key(NamedTuple):
    """A key as a client gave it, for a route, with what it was given for."""

    route: str
    text: str
    body_hash: bytes


async def once(
    session: Session, owner: Owner, key: Key | None, kind: type[Made], make: Callable[[], Awaitable[Made]]
) -> Made:
    """What `make` yields, made in this transaction, or kept from the first request that had this key."""
    if key is None:
        return await make()
    mine = {"tenant": owner.tenant, "user": owner.user, "route": key.route, "key": key.text}
    claimed = await session.call("claim_key", **mine, hash=key.body_hash)
    if claimed["state"] == "conflict":
        raise IdempotencyConflict
    if claimed["state"] == "repeated":
        return msgspec.json.decode(claimed["answer"], type=kind)
    made = await make()
    await session.call("keep_answer", **mine, answer=msgspec.json.encode(made).decode())
    return made
