"""How many connections each user keeps open here, be it WebSockets or event streams."""

from tertulia.core.errors import TooManyConnections
from tertulia.core.model import Owner


class Presence:
    """Counts, and refuses one too many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[Owner, int] = {}

    def enter(self, owner: Owner) -> None:
        if self._open.get(owner, 0) >= self._limit:
            raise TooManyConnections(retry_after=5)
        self._open[owner] = self._open.get(owner, 0) + 1

    def leave(self, owner: Owner) -> None:
        self._open[owner] -= 1
        if not self._open[owner]:
            del self._open[owner]
