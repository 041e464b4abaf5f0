"""Words to all workers at once: stop these turns, forget this conversation. Only hints; SQL has the truth."""

from uuid import UUID

import msgspec
from msgspec import Struct

from tertulia.core.model import Owner
from tertulia.valkey import Pipeline

CHANNEL = "tertulia:hints"


class Hint(Struct, frozen=True):
    """`turns` were asked to stop; `forget` is a conversation that was deleted."""

    turns: list[UUID] = []
    owner: Owner | None = None
    forget: UUID | None = None


class Hints:
    """Tells all workers."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def tell(self, hint: Hint) -> None:
        self._pipeline.post("PUBLISH", CHANNEL, msgspec.json.encode(hint))


def parse(payload: bytes) -> Hint:
    return msgspec.json.decode(payload, type=Hint)
