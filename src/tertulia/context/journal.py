"""What the context says about itself in the log."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from tertulia import logs
from tertulia.core.model import Owner

CONVERSATION_BYTES = 2048
"""About what a conversation takes besides the bytes of its messages."""

CALM = 0.9
"""Below this part of the limit, passing it again is worth another warning."""


class Reason(StrEnum):
    """Why a conversation left the context."""

    DELETED = "deleted"
    EXPIRED = "expired"
    EVICTED = "evicted"


class Name(NamedTuple):
    """What a conversation is called among those of all owners."""

    owner: Owner
    conversation: str


class Journal:
    """Logs every deletion, every change of the count, and the passing of a limit once."""

    def __init__(self, storage: str, memory_warning: int) -> None:
        self._log = logs.get("context").bind(storage=storage)
        self._limit = memory_warning
        self._count = 0
        self._warned = False
        self._log.info("context_opened")

    def removed(self, gone: Sequence[tuple[Name, Reason]]) -> None:
        for (owner, conversation), reason in gone:
            self._log.info(
                "context_deleted",
                tenant=owner.tenant,
                user=owner.user,
                conversation=conversation,
                reason=reason.value,
            )
        if evicted := sum(reason is Reason.EVICTED for _, reason in gone):
            self._log.warning("context_full", evicted=evicted)

    def counted(self, count: int, size: int) -> None:
        """Take note of how many conversations there are and of the bytes of all their messages."""
        memory = _estimate(count, size)
        if count != self._count:
            self._count = count
            self._log.debug("context_counted", conversations=count, memory_bytes=memory)
        if memory > self._limit and not self._warned:
            self._warned = True
            self._warn(count, memory)
        elif memory < self._limit * CALM:
            self._warned = False

    def report(self, count: int, size: int) -> None:
        memory = _estimate(count, size)
        self._log.info("context_report", conversations=count, memory_bytes=memory)
        if memory > self._limit:
            self._warn(count, memory)

    def _warn(self, count: int, memory: int) -> None:
        self._log.warning(
            "context_memory_high", conversations=count, memory_bytes=memory, limit_bytes=self._limit
        )


def _estimate(count: int, size: int) -> int:
    return size + count * CONVERSATION_BYTES
