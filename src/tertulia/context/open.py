"""The one place that chooses where the context is kept."""

from typing import TYPE_CHECKING, Literal

from tertulia.clock import now
from tertulia.context.limits import Clock, ContextLimits
from tertulia.context.memory import MemoryContextStores
from tertulia.context.port import ContextStores
from tertulia.context.redis import RedisContextStores

if TYPE_CHECKING:
    from redis.asyncio import Redis


def open_stores(
    mode: Literal["memory", "redis"], limits: ContextLimits, client: "Redis | None" = None, clock: Clock = now
) -> ContextStores:
    """The stores of this mode; `redis` needs a client, which stays the caller's."""
    if mode == "memory":
        return MemoryContextStores(limits, clock)
    if client is None:
        raise ValueError("the redis context store needs a client")
    return RedisContextStores(limits, client, clock)
