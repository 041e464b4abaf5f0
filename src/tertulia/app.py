"""The composition root of a server: services, faces, and a worker beside them if wanted."""

import asyncio
import contextlib
import socket as sockets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import uvicorn
from litestar import Litestar
from litestar.datastructures import State

from tertulia.accept import Reception
from tertulia.core.agents import AgentProfile
from tertulia.crowds import Crowds
from tertulia.duties import every
from tertulia.faces import (
    agents,
    briefings,
    docs,
    errors,
    messages,
    notifications,
    operations,
    search,
    socket,
    standing,
)
from tertulia.faces import conversations as api_conversations
from tertulia.faces.auth import Tokens
from tertulia.faces.gate import Gate
from tertulia.faces.limits import Limits
from tertulia.faces.presence import Presence
from tertulia.faces.streams import Streams
from tertulia.faces.transport import BoundedHttp, BoundedWebSocket
from tertulia.queue.hints import Hints
from tertulia.queue.outbox import Outbox
from tertulia.settings import Settings, default_agent
from tertulia.store.agents import Directory
from tertulia.store.briefings import Briefings
from tertulia.store.conversations import Conversations
from tertulia.store.search import Search
from tertulia.store.users import Users
from tertulia.wiring import Services, services
from tertulia.worker.process import worker

Announce = Callable[[str], None]

_LOOK = 2.0  # seconds between looks at how many turns each tenant has


def application(parts: Services, crowds: Crowds) -> Litestar:
    """All faces over these services."""
    settings = parts.settings
    gate = Gate(
        Tokens(settings),
        Limits(settings.user_requests_per_minute, settings.tenant_requests_per_minute),
        Users(parts.database),
    )
    presence = Presence(settings.sockets_per_user)
    conversations = Conversations(parts.database, settings.open_turns)
    outbox = Outbox(parts.database, parts.events)
    state = State(
        {
            "settings": settings,
            "gate": gate,
            "database": parts.database,
            "pipeline": parts.pipeline,
            "relay": parts.relay,
            "hints": Hints(parts.pipeline),
            "events": parts.events,
            "messages": parts.messages,
            "notifications": parts.notifications,
            "conversations": conversations,
            "directory": Directory(parts.database, default_agent(settings)),
            "briefings": Briefings(parts.database, settings.agent_id),
            "search": Search(parts.database),
            "reception": Reception(
                parts.messages,
                conversations,
                parts.publisher,
                parts.events,
                outbox,
                crowds,
                longest=settings.message_chars,
            ),
            "presence": presence,
            "streams": Streams(parts.relay, conversations, parts.messages, presence, settings),
        }
    )
    return Litestar(
        route_handlers=[
            *messages.ROUTES,
            *standing.ROUTES,
            *api_conversations.ROUTES,
            *agents.ROUTES,
            *briefings.ROUTES,
            *notifications.ROUTES,
            *search.ROUTES,
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


async def serve(
    settings: Settings, *, agents: list[AgentProfile] | None, with_worker: bool, announce: Announce
) -> None:
    """Serve until SIGTERM or SIGINT; running turns may end first. `agents` become those of every tenant."""
    listening = _listen(settings.host, settings.port)
    async with services(settings) as parts, _worker(parts, wanted=with_worker):
        crowds = Crowds(parts.database, settings.open_turns_per_tenant)
        app = application(parts, crowds)
        if agents is not None:
            await app.state.directory.declare(agents)
        config = uvicorn.Config(
            app,
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
        server = _Server(config, lambda: announce(_address(listening)), app.state.streams.close)
        looking = asyncio.ensure_future(every(_LOOK, crowds.look))
        try:
            await server.serve(sockets=[listening])
        finally:
            looking.cancel()


def _frame_bytes(settings: Settings) -> int:
    """Room for the longest message in a frame, all of it emoji, each of them escaped as a surrogate pair."""
    return max(65_536, 12 * settings.message_chars + 4096)


class _Server(uvicorn.Server):
    """Says when it listens, and lets those who listen to it go before it ends."""

    def __init__(
        self, config: uvicorn.Config, started: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._started = started
        self._ending = ending

    async def startup(self, sockets: "list[sockets.socket] | None" = None) -> None:
        await super().startup(sockets)
        self._started()

    async def shutdown(self, sockets: "list[sockets.socket] | None" = None) -> None:
        self._ending()
        await super().shutdown(sockets)


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
