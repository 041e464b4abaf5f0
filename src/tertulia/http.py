"""A listening socket, and an application that is served on it until the process is told to stop."""

import socket as sockets
from collections.abc import Callable
from typing import Any

import uvicorn

from tertulia.faces.transport import BoundedHttp, BoundedWebSocket


def address(listening: "sockets.socket") -> str:
    """Where to reach it."""
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


async def serve(
    app: Any, listening: "sockets.socket", *,
    started: Callable[[], None], ending: Callable[[], None], frame_bytes: int = 65_536,
) -> None:  # fmt: skip
    """Serve until SIGTERM or SIGINT. `started` is called when it listens, `ending` before connections are closed."""
    listening.listen(2048)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedHttp,
        ws=BoundedWebSocket,
        ws_max_size=frame_bytes,
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
    await _Server(config, started, ending).serve(sockets=[listening])


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
