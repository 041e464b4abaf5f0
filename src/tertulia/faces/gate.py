"""The gate before every route: who is it, and not too often."""

from typing import Any, cast

from litestar import Request
from litestar.datastructures import State
from litestar.types import ASGIApp, Receive, Scope, Send

from tertulia.core.errors import InvalidRequest, Unauthenticated, UnsupportedMediaType
from tertulia.core.model import Principal
from tertulia.faces.auth import Tokens
from tertulia.faces.limits import Limits
from tertulia.store.users import Users

Guest = Request[Any, Any, State]
Signed = Request[Principal, Any, State]

_UNSAID = (b"", b"application/x-www-form-urlencoded")

OPEN = "open"  # a route with opt={OPEN: True} needs no token


class Gate:
    """Finds out who asks, makes sure the database knows them, and counts."""

    def __init__(self, tokens: Tokens, limits: Limits, users: Users) -> None:
        self.tokens = tokens
        self._limits = limits
        self._users = users

    async def admit(self, token: str) -> Principal:
        principal = self.tokens.verify(token)
        self.count(principal)
        await self._users.meet(principal)
        return principal

    def count(self, principal: Principal) -> None:
        """One more request of theirs; raises when it is one too many."""
        self._limits.check(principal.owner)

    def middleware(self, app: ASGIApp) -> ASGIApp:
        async def gated(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and not scope["route_handler"].opt.get(OPEN):
                headers = dict(cast("list[tuple[bytes, bytes]]", scope["headers"]))
                if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
                    raise InvalidRequest("Compressed request bodies are not accepted.")
                scope["user"] = await self.admit(bearer(headers.get(b"authorization", b"")))
                if not _json(headers.get(b"content-type", b"")):
                    raise UnsupportedMediaType
            await app(scope, receive, send)

        return gated


def _json(content_type: bytes) -> bool:
    """JSON, or what says nothing: no type at all, or that of a form, which `curl -d` adds by itself."""
    kind = content_type.partition(b";")[0].strip().lower()
    return kind in _UNSAID or kind == b"application/json" or kind.endswith(b"+json")


def bearer(header: bytes) -> str:
    """The token of an Authorization header."""
    scheme, _, token = header.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated
    return token.strip()
