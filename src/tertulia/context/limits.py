"""How much the context may hold, and for how long."""

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

Clock = Callable[[], datetime]


class ContextLimits(Struct, frozen=True):
    """The limits of the whole store; `ttl` is in seconds without activity, `memory_warning` in bytes."""

    messages: int = 20
    ttl: float = 3600.0
    conversations: int = 1000
    memory_warning: int = 100 * 1024 * 1024
