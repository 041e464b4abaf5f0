"""Who has how many slots, and who waits for one: no tenant takes all of them, nor a user all of their tenant's."""

from collections import OrderedDict, deque
from typing import TypeVar

from tertulia.core.model import Owner
from tertulia.queue.consumer import Wakeup

_WAITING = 500

Name = TypeVar("Name")


class Shares:
    """Counts slots in use. Wake-ups for which there is no slot wait here, each user's in order, users in turn."""

    def __init__(self, per_tenant: int, per_user: int, waiting: int = _WAITING) -> None:
        self._per_tenant = per_tenant
        self._per_user = per_user
        self._limit = waiting
        self._tenants: dict[str, int] = {}
        self._users: dict[Owner, int] = {}
        self._waiting: dict[str, OrderedDict[str, deque[Wakeup]]] = {}
        self._lengths: dict[str, int] = {}

    def enter(self, owner: Owner) -> bool:
        """Take a slot, if this owner may have one more."""
        if not self._room(owner):
            return False
        self._tenants[owner.tenant] = self._tenants.get(owner.tenant, 0) + 1
        self._users[owner] = self._users.get(owner, 0) + 1
        return True

    def leave(self, owner: Owner) -> None:
        """Give a slot back."""
        _decrement(self._tenants, owner.tenant)
        _decrement(self._users, owner)

    def park(self, wakeup: Wakeup) -> bool:
        """Keep it until there is a slot; False when too many of its tenant wait already."""
        tenant, user = wakeup.owner
        if self._lengths.get(tenant, 0) >= self._limit:
            return False
        self._waiting.setdefault(tenant, OrderedDict()).setdefault(user, deque()).append(wakeup)
        self._lengths[tenant] = self._lengths.get(tenant, 0) + 1
        return True

    def next(self, tenant: str) -> Wakeup | None:
        """The next that waits and may have a slot: of the user whose turn it is."""
        users = self._waiting.get(tenant, OrderedDict())
        for user, waiting in users.items():
            if not self._room(Owner(tenant, user)):
                continue
            wakeup = waiting.popleft()
            _decrement(self._lengths, tenant)
            users.move_to_end(user)
            if not waiting:
                del users[user]
            if not users:
                del self._waiting[tenant]
            return wakeup
        return None

    def _room(self, owner: Owner) -> bool:
        return (
            self._tenants.get(owner.tenant, 0) < self._per_tenant
            and self._users.get(owner, 0) < self._per_user
        )


def _decrement(counts: dict[Name, int], name: Name) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
