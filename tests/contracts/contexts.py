"""The words of the context contracts: stores on a clock moved by hand, messages, and what the log says."""

from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from tertulia.context.limits import ContextLimits
from tertulia.context.open import open_stores
from tertulia.context.port import ContextStores, ConversationStore
from tertulia.core.model import ContextMessage, Owner, Role

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
ANA = Owner("acme", "ana")
REPOS = {"type": "repo_list", "data": [{"name": "zustand"}, {"name": "jotai", "stars": 18_000}]}

Entry = Any


class HandClock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.time = NOON

    def __call__(self) -> datetime:
        return self.time

    def advance(self, **by: float) -> None:
        self.time += timedelta(**by)


class Bench:
    """Opens stores of one kind, on one clock, over one server."""

    def __init__(self, mode: Any, client: Redis | None) -> None:
        self.mode = mode
        self.client = client
        self.clock = HandClock()

    def stores(self, **limits: Any) -> ContextStores:
        return open_stores(self.mode, ContextLimits(**limits), self.client, self.clock)


def said(text: str, **more: Any) -> ContextMessage:
    return ContextMessage(Role.USER, text, NOON, **more)


def answered(text: str, **more: Any) -> ContextMessage:
    return ContextMessage(Role.ASSISTANT, text, NOON, **more)


def texts(messages: list[ContextMessage]) -> list[Any]:
    return [message.content for message in messages]


def deletions(log: list[Entry]) -> list[tuple[str, str, str, str]]:
    found = [entry for entry in log if entry["event"] == "context_deleted"]
    return [(entry["tenant"], entry["user"], entry["conversation"], entry["reason"]) for entry in found]


def warnings(log: list[Entry], event: str) -> list[Entry]:
    return [entry for entry in log if entry["log_level"] == "warning" and entry["event"] == event]


async def is_there(store: ConversationStore, conversation: str) -> bool:
    return await store.get(conversation) is not None
