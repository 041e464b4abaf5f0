"""Errors as HTTP answers: `{"error": {"code", "message"}}`, and nothing of our insides."""

from typing import Any

from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException

from tertulia import logs
from tertulia.core.errors import BodyTooLarge, InvalidRequest, NotFound, TertuliaError, TooManyRequests
from tertulia.core.statuses import http_status
from tertulia.faces.body import shortened
from tertulia.metrics import REFUSED

_log = logs.get("faces")


class MethodNotAllowed(InvalidRequest):
    code = "METHOD_NOT_ALLOWED"
    message = "This address does not take that method."


def answer(error: TertuliaError, status: int | None = None) -> Response[dict[str, Any]]:
    headers = {"Retry-After": str(error.retry_after or 1)} if error.temporary else {}
    if error.code == "UNAUTHENTICATED":
        headers["WWW-Authenticate"] = "Bearer"
    return Response(
        {"error": {"code": error.code, "message": str(error)}},
        status_code=status or http_status(error),
        media_type=MediaType.JSON,
        headers=headers,
    )


def on_tertulia(_: Request[Any, Any, Any], error: TertuliaError) -> Response[dict[str, Any]]:
    count(error)
    return answer(error)


def count(error: TertuliaError) -> None:
    """Note what was refused because it was too much."""
    if isinstance(error, TooManyRequests):
        REFUSED.labels(error.code).inc()


def on_http(_: Request[Any, Any, Any], error: HTTPException) -> Response[dict[str, Any]]:
    """What the framework refuses, in our words."""
    if error.status_code == 404:
        return answer(NotFound())
    if error.status_code == 405:
        refused = answer(MethodNotAllowed(), 405)
        refused.headers.update(error.headers or {})
        return refused
    if error.status_code == 413:
        return answer(BodyTooLarge())
    if error.status_code < 500:
        return answer(InvalidRequest(_what_is_wrong(error)))
    return on_anything(_, error)


def _what_is_wrong(error: HTTPException) -> str:
    """Which parameter, and why, where the framework knows."""
    named = [part for part in error.extra if "key" in part] if isinstance(error.extra, list) else []
    if not named:
        return "A part of the request's address or headers is not as it should be."
    return "; ".join(f"{part['key']}: {shortened(str(part.get('message')))}" for part in named) + "."


def on_anything(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    """A bug: the log has it all, the client learns only that it is not their fault."""
    _log.error("request broke", method=request.method, route=request.scope["path"], exc_info=error)
    return answer(TertuliaError())


HANDLERS: dict[Any, Any] = {TertuliaError: on_tertulia, HTTPException: on_http, Exception: on_anything}
