"""The composition root of a server: services, faces, and a worker beside them if wanted."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from litestar import Litestar
from litestar.datastructures import State

from tertulia import http, logs
from tertulia.accept import Reception
from tertulia.core.agents import AgentProfile
from tertulia.crowds import Crowds
from tertulia.duties import doing, every
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
from tertulia.queue.hints import Hints
from tertulia.queue.outbox import Outbox
from tertulia.settings import Settings, default_agent
from tertulia.stopping import Stopping
from tertulia.store.agents import Directory
from tertulia.store.briefings import Briefings
from tertulia.store.conversations import Conversations
from tertulia.store.search import Search
from tertulia.store.turns import Turns
from tertulia.store.users import Users
from tertulia.wiring import Services, services
from tertulia.worker.process import worker

if TYPE_CHECKING:
    import socket as sockets

Announce = Callable[[str], None]

_log = logs.get("worker")
_LOOK = 2.0  # seconds between looks at how many turns each tenant has
_COUNT = 5.0  # seconds between counts of all turns; where there is a worker, it counts


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
    hints = Hints(parts.pipeline)
    turns = Turns(parts.database, uuid4(), settings.lease_seconds)
    state = State(
        {
            "settings": settings,
            "gate": gate,
            "database": parts.database,
            "pipeline": parts.pipeline,
            "relay": parts.relay,
            "hints": hints,
            "stopping": Stopping(conversations, turns, outbox, hints, parts.publisher),
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
    settings: Settings, listening: "sockets.socket", *,
    agents: list[AgentProfile] | None, with_worker: bool, announce: Announce,
) -> None:  # fmt: skip
    """Serve until SIGTERM or SIGINT; running turns may end first. `agents` become those of every tenant."""
    async with services(settings) as parts, _worker(parts, wanted=with_worker):
        crowds = Crowds(parts.database, settings.open_turns_per_tenant)
        app = application(parts, crowds)
        if agents is not None:
            await app.state.directory.declare(agents)
        duties = [every(_LOOK, crowds.look)] if with_worker else [
            every(_LOOK, crowds.look), every(_COUNT, parts.backlog.count)
        ]  # fmt: skip
        async with doing(*duties):
            await http.serve(
                app,
                listening,
                frame_bytes=_frame_bytes(settings),
                started=lambda: announce(http.address(listening)),
                ending=app.state.streams.close,
            )


async def work(settings: Settings, listening: "sockets.socket | None") -> None:
    """Answer messages until SIGTERM or SIGINT, then let running turns end; tell how it goes, if there is where."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with services(settings) as parts, worker(parts):
        told = {"metrics": f"{http.address(listening)}/metrics"} if listening else {}
        _log.info("worker ready", model=settings.model_name, slots=settings.worker_slots, **told)
        if listening:
            await http.serve(_observation(parts), listening, started=lambda: None, ending=lambda: None)
        await stop.wait()


def _observation(parts: Services) -> Litestar:
    """What operators may ask of a process that serves nobody else."""
    return Litestar(
        route_handlers=operations.ROUTES,
        exception_handlers=errors.HANDLERS,
        state=State({"database": parts.database, "pipeline": parts.pipeline}),
        openapi_config=None,
        logging_config=None,
    )


def _frame_bytes(settings: Settings) -> int:
    """Room for the longest message in a frame, all of it emoji, each of them escaped as a surrogate pair."""
    return max(65_536, 12 * settings.message_chars + 4096)


@asynccontextmanager
async def _worker(parts: Services, *, wanted: bool) -> AsyncGenerator[None]:
    async with worker(parts) if wanted else contextlib.nullcontext():
        yield
