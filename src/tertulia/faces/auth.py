"""Tokens: signed by us or by whoever shares the secret, saying who somebody is and until when."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

import jwt

from tertulia.core.errors import Unauthenticated
from tertulia.core.model import Principal
from tertulia.core.text import cleaned
from tertulia.settings import Settings

_REMEMBERED = 10_000
_LEEWAY = 30
_LONGEST = 8192
_DAY = 86_400.0
_ROLES: dict[str, Literal["user", "agent", "admin"]] = {"agent": "agent", "admin": "admin"}


def sign(
    settings: Settings, *, user: str, tenant: str, role: Literal["user", "agent", "admin"], ttl: float
) -> str:
    """A token for this user that holds for `ttl` seconds."""
    claims: dict[str, Any] = {
        settings.claim_user: user,
        settings.claim_tenant: tenant,
        settings.claim_role: role,
        "exp": int(time.time() + ttl),
    }
    if settings.audience:
        claims["aud"] = settings.audience
    if settings.issuer:
        claims["iss"] = settings.issuer
    return jwt.encode(claims, settings.secrets[0], algorithm="HS256")


class Expiry:
    """Calls back when a token has run out for good. (A timer of the event loop does not take every far time.)"""

    def __init__(self, principal: Principal, expired: Callable[[], None]) -> None:
        self._at = principal.expires_at + _LEEWAY
        self._expired = expired
        self._timer: asyncio.TimerHandle
        self._set()

    def cancel(self) -> None:
        self._timer.cancel()

    def _set(self) -> None:
        left = self._at - time.time()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(max(left, 0), _DAY), self._set if left > _DAY else self._expired)


class Tokens:
    """Verifies tokens, remembering those it has seen."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: OrderedDict[str, Principal] = OrderedDict()

    def verify(self, token: str) -> Principal:
        """Who the token says it is; raises `Unauthenticated` for one that is wrong or has expired."""
        known = self._known.get(token)
        if known is None:
            if len(token) > _LONGEST:
                raise Unauthenticated("The token is too long to be one of ours.")
            known = self._known[token] = self._principal(self._claims(token))
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        if known.expires_at + _LEEWAY < time.time():
            self._known.pop(token, None)
            raise Unauthenticated("The token has expired. Please sign in again.")
        return known

    def _claims(self, token: str) -> dict[str, Any]:
        settings = self._settings
        refused: Exception | None = None
        for secret in settings.secrets:
            try:
                return jwt.decode(
                    token,
                    secret,
                    algorithms=["HS256"],
                    audience=settings.audience,
                    issuer=settings.issuer,
                    leeway=_LEEWAY,
                    options={"require": ["exp", settings.claim_user, settings.claim_tenant]},
                )
            except jwt.InvalidTokenError as error:
                refused = error
            except (ValueError, TypeError, OverflowError, RecursionError) as error:
                refused = error
        raise Unauthenticated("The token is not valid here. Please sign in again.") from refused

    def _principal(self, claims: dict[str, Any]) -> Principal:
        settings = self._settings
        return Principal(
            tenant=_name(claims[settings.claim_tenant]),
            user=_name(claims[settings.claim_user]),
            role=_ROLES.get(str(claims.get(settings.claim_role)), "user"),
            name=_text(claims.get("name")),
            email=_text(claims.get("email")),
            timezone=_text(claims.get("zoneinfo")),
            expires_at=_seconds(claims["exp"]),
        )


def may_be_name(text: str) -> bool:
    """Whether a user or a tenant may be called that."""
    return 1 <= len(text) <= 200 and text.isprintable()


def _name(value: object) -> str:
    if not isinstance(value, str) or not may_be_name(value):
        raise Unauthenticated("The token names its user or tenant in a way that is not accepted here.")
    return value


def _seconds(value: Any) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise Unauthenticated("The token says a time of expiry that no clock will show.") from error


def _text(value: object) -> str | None:
    return cleaned(value[:200]) if isinstance(value, str) else None
