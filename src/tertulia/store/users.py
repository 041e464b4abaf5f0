"""Users, as their tokens introduce them."""

from tertulia.core.model import Principal
from tertulia.store.database import Database

_REMEMBERED = 100_000


class Users:
    """Knows which users this process has already written down."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._met: set[tuple[str | None, ...]] = set()

    async def meet(self, principal: Principal) -> None:
        """Write the user down the first time, and again when the token tells another name or address."""
        introduced = (
            principal.tenant, principal.user, principal.name, principal.email, principal.timezone
        )  # fmt: skip
        if introduced in self._met:
            return
        async with self._database.transaction(principal.owner) as session:
            await session.one(
                "meet_user",
                tenant=principal.tenant,
                user=principal.user,
                name=principal.name,
                email=principal.email,
                timezone=principal.timezone,
            )
        if len(self._met) >= _REMEMBERED:
            self._met.clear()
        self._met.add(introduced)
