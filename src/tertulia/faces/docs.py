"""`/docs`: a page about the API, and the documents it is made from. Anybody may read them."""

import base64
import hashlib
import re
from importlib.resources import files
from typing import Any, cast

from litestar import MediaType, Request, Response, Router, get
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from tertulia import __version__
from tertulia.faces import asyncapi
from tertulia.faces.gate import OPEN

_PAGE = files("tertulia.faces").joinpath("docs.html").read_bytes()

_ABOUT = """Conversations with agents. Sign in with a bearer token: `tertulia token --user you` prints one.

Bodies are JSON, without unknown fields or duplicate keys. Every error is
`{"error": {"code", "message"}}`. What happens in a conversation is told as server-sent events, here, and over
WebSocket: see `/docs/asyncapi.json`."""


class Document(JsonRenderPlugin):
    """The description as JSON, in which a value that may be anything is not also said to be null."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        plugin: Any = super()
        return plugin.render(request, _plain(openapi_schema))


def _plain(part: Any) -> Any:
    if isinstance(part, list):
        return [_plain(each) for each in cast(list[Any], part)]
    if not isinstance(part, dict):
        return part
    inside = {name: _plain(each) for name, each in cast(dict[str, Any], part).items()}
    if {} in inside.get("oneOf", ()):
        del inside["oneOf"]
    return inside


class Page(OpenAPIRenderPlugin):
    """Our own page: it reads `/docs/openapi.json` and loads nothing from elsewhere."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return _PAGE


@get("/asyncapi.json", media_type=MediaType.JSON)
async def websocket_document() -> Response[dict[str, Any]]:
    """What is said over `/ws`."""
    return Response(asyncapi.document())


def _hashes(tag: str) -> str:
    """What lets the page's own style or script run, and no other."""
    inside = re.findall(rb"<%b>(.*?)</%b>" % (tag.encode(), tag.encode()), _PAGE, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(each).digest()).decode()}'" for each in inside)


def configuration() -> OpenAPIConfig:
    """Where and how the API is described."""
    policy = (
        f"default-src 'none'; script-src {_hashes('script')}; style-src {_hashes('style')};"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return OpenAPIConfig(
        title="Tertulia",
        version=__version__,
        description=_ABOUT,
        render_plugins=[Page(path="/"), Document(path="/openapi.json", media_type=MediaType.JSON)],
        openapi_router=Router(
            "/docs",
            route_handlers=[websocket_document],
            include_in_schema=False,
            opt={OPEN: True},
            response_headers=headers,
        ),
        components=[Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")})],
        security=[{"token": []}],
        use_handler_docstrings=True,
    )
