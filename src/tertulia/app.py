"""The composition root of a server: services, faces, and a worker beside them if wanted."""

import contextlib
import socket as sockets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import uvicorn
from litestar import Litestar
from litestar.datastructures import State

from tertulia.accept import Reception
from tertulia.faces import conversations, docs, errors, messages, notifications, operations, socket
from tertulia.faces.auth import Tokens
from tertulia.faces.gate import Gate
from tertulia.faces.limits import Limits
from tertulia.faces.transport import BoundedHttp, BoundedWebSocket
from tertulia.queue.hints import Hints
from tertulia.settings import Settings
from tertulia.store.conversations import Conversations
from tertulia.store.users import Users
from tertulia.wiring import Services, services
from tertulia.worker.process import worker

Announce = Callable[[str], None]


def application(parts: Services) -> Litestar:
    """All faces over these services."""
    settings = parts.settings
    gate = Gate(
        Tokens(settings),
        Limits(settings.user_requests_per_minute, settings.tenant_requests_per_minute),
        Users(parts.database),
    )
    state = State(
        {
            "settings": settings,
            "gate": gate,
            "database": parts.database,
            "pipeline": parts.pipeline,
            "relay": parts.relay,
            "publisher": parts.publisher,
            "hints": Hints(parts.pipeline),
            "messages": parts.messages,
            "notifications": parts.notifications,
            "conversations": Conversations(parts.database, settings.queued_per_conversation),
            "reception": Reception(
                parts.messages, parts.publisher, parts.events,
                agent_id=settings.agent_id, longest=settings.message_chars,
            ),
            "peers": {},
        }
    )  # fmt: skip
    return Litestar(
        route_handlers=[
            *messages.ROUTES,
            *conversations.ROUTES,
            *notifications.ROUTES,
            *operations.ROUTES,
            *socket.ROUTES,
        ],
        middleware=[gate.middleware],
        exception_handlers=errors.HANDLERS,
        request_max_body_size=settings.body_bytes,
        state=state,
        openapi_config=docs.configuration(),
        logging_config=None,
        debug=False,
    )


async def serve(settings: Settings, *, with_worker: bool, announce: Announce) -> None:
    """Serve until SIGTERM or SIGINT; running turns may end first."""
    listening = _listen(settings.host, settings.port)
    async with services(settings) as parts, _worker(parts, wanted=with_worker):
        config = uvicorn.Config(
            application(parts),
            loop="uvloop",
            http=BoundedHttp,
            ws=BoundedWebSocket,
            ws_max_size=_frame_bytes(settings),
            ws_per_message_deflate=False,
            ws_ping_interval=30.0,
            ws_ping_timeout=30.0,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=5,
        )
        server = _Server(config, lambda: announce(_address(listening)))
        await server.serve(sockets=[listening])


def _frame_bytes(settings: Settings) -> int:
    """Room for the longest message in a frame, all of it emoji, each of them escaped as a surrogate pair."""
    return max(65_536, 12 * settings.message_chars + 4096)


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: "list[sockets.socket] | None" = None) -> None:
        await super().startup(sockets)
        self._started()


@asynccontextmanager
async def _worker(parts: Services, *, wanted: bool) -> AsyncGenerator[None]:
    async with worker(parts) if wanted else contextlib.nullcontext():
        yield


def _listen(host: str, port: int) -> "sockets.socket":
    family = sockets.AF_INET6 if ":" in host else sockets.AF_INET
    listening = sockets.socket(family, sockets.SOCK_STREAM)
    listening.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen(2048)
    return listening


def _address(listening: "sockets.socket") -> str:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
