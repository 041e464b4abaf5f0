"""Tenants that have very many turns waiting: nothing more of theirs is taken until there are fewer."""

from tertulia.core.errors import TooManyTurns
from tertulia.store.database import Database


class Crowds:
    """Looks now and then, so that accepting a message costs nothing for it; a limit of 0 is none."""

    def __init__(self, database: Database, limit: int) -> None:
        self._database = database
        self._limit = limit
        self._crowded: frozenset[str] = frozenset()

    async def look(self) -> None:
        """See which tenants are over the limit now."""
        if self._limit:
            rows = await self._database.many("crowded_tenants", limit=self._limit)
            self._crowded = frozenset(row["tenant"] for row in rows)

    def is_crowded(self, tenant: str) -> bool:
        return tenant in self._crowded

    def check(self, tenant: str) -> None:
        if self.is_crowded(tenant):
            raise TooManyTurns(
                "Your organisation has many messages waiting for answers. Please wait until some are done.",
                retry_after=5,
            )
