"""Wake-ups: a word on a stream that a message waits. The message itself is in the database."""

from uuid import UUID

from tertulia.core.model import Owner
from tertulia.valkey import Pipeline

STREAM = "tertulia:turns"
GROUP = "workers"


class Publisher:
    """Adds wake-ups to the stream. One that is lost is made up for by the sweeper."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def wake(self, owner: Owner, conversation: UUID, message: UUID) -> None:
        self._pipeline.post(
            "XADD", STREAM, "*",
            "tenant_id", owner.tenant, "user_id", owner.user,
            "conversation_id", str(conversation), "message_id", str(message),
        )  # fmt: skip
