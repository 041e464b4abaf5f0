"""For operators: is it alive, is it ready, how is it doing."""

import asyncio
from typing import Any

from litestar import MediaType, Response, get
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tertulia.core.errors import Unavailable
from tertulia.faces.gate import OPEN, Guest
from tertulia.store.database import Database
from tertulia.valkey import Pipeline


@get("/healthz", opt={OPEN: True}, tags=["operations"], summary="Is the process alive?")
async def healthz() -> dict[str, str]:
    """Answers as long as the process does."""
    return {"status": "ok"}


@get("/readyz", opt={OPEN: True}, tags=["operations"], summary="Can it serve?")
async def readyz(request: Guest) -> Response[dict[str, Any]]:
    """200 when PostgreSQL and Redis answer within two seconds, else 503 that says which does not."""
    database: Database = request.app.state.database
    pipeline: Pipeline = request.app.state.pipeline
    checks = await asyncio.gather(database.reachable(), _answers(pipeline))
    state = dict(zip(("postgresql", "redis"), checks, strict=True))
    ready = all(checks)
    return Response({"status": "ready" if ready else "not ready", **state}, status_code=200 if ready else 503)


async def _answers(pipeline: Pipeline) -> bool:
    try:
        async with asyncio.timeout(2):
            return await pipeline.call("PING") is not None
    except (Unavailable, TimeoutError):
        return False


@get("/metrics", opt={OPEN: True}, media_type=MediaType.TEXT, tags=["operations"], summary="Metrics for Prometheus")
async def metrics() -> Response[bytes]:
    """Counters, gauges and histograms of this process."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


ROUTES = [healthz, readyz, metrics]
