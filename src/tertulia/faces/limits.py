"""How often one user and one tenant may ask, counted in this process."""

import math
import time

from tertulia.core.errors import TooManyRequests
from tertulia.core.model import Owner

_REMEMBERED = 50_000


class Rate:
    """So many requests a minute for each name; unused ones add up to a burst of a quarter of that.

    Keeps one number per name: the time at which its bucket will be full again.
    """

    def __init__(self, per_minute: int) -> None:
        self._interval = 60.0 / per_minute
        self._burst = max(per_minute / 4, 1.0) * self._interval
        self._full_at: dict[object, float] = {}

    def wait(self, name: object) -> float:
        """Count a request; the seconds to wait if it is one too many, else 0."""
        now = time.monotonic()
        full_at = max(self._full_at.get(name, now), now) + self._interval
        if full_at - now > self._burst:
            return full_at - now - self._burst
        if len(self._full_at) >= _REMEMBERED:
            self._full_at = {key: at for key, at in self._full_at.items() if at > now}
        self._full_at[name] = full_at
        return 0.0


class Limits:
    """The limits of users and of tenants together."""

    def __init__(self, user_per_minute: int, tenant_per_minute: int) -> None:
        self._users = Rate(user_per_minute)
        self._tenants = Rate(tenant_per_minute)

    def check(self, owner: Owner) -> None:
        """Let the request through or raise 429 with the time to wait."""
        wait = self._users.wait(owner) or self._tenants.wait(owner.tenant)
        if wait:
            raise TooManyRequests(retry_after=math.ceil(wait))
