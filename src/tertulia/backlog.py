"""How many turns of the whole system have not ended, for Prometheus."""

from tertulia import metrics
from tertulia.store.database import Database


class Backlog:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def count(self) -> None:
        """Count them now."""
        for status, number in dict(await self._database.one("backlog")).items():
            metrics.BACKLOG.labels(status).set(number)
