"""For operators: is it alive, is it ready, how is it doing."""

import asyncio
from typing import Literal

from litestar import MediaType, Response, get
from litestar.openapi.datastructures import ResponseSpec
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tertulia.core.errors import Unavailable
from tertulia.faces.gate import OPEN, Guest
from tertulia.faces.openapi import ANYBODY
from tertulia.store.database import Database
from tertulia.valkey import Pipeline


class Alive(Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Readiness(Struct, frozen=True):
    """Whether each service that we need answers."""

    status: Literal["ready", "not ready"]
    postgresql: bool
    redis: bool


@get("/healthz", opt={OPEN: True}, security=ANYBODY, tags=["operations"], summary="Is the process alive?")
async def healthz() -> Alive:
    """Answers as long as the process does."""
    return Alive()


@get(
    "/readyz",
    opt={OPEN: True},
    security=ANYBODY,
    responses={503: ResponseSpec(Readiness, generate_examples=False, description="Something is down.")},
    tags=["operations"],
    summary="Can it serve?",
)
async def readyz(request: Guest) -> Response[Readiness]:
    """200 when PostgreSQL and Redis answer within two seconds, else 503 that says which does not."""
    database: Database = request.app.state.database
    pipeline: Pipeline = request.app.state.pipeline
    postgresql, redis = await asyncio.gather(database.reachable(), _answers(pipeline))
    ready = postgresql and redis
    state = Readiness("ready" if ready else "not ready", postgresql, redis)
    return Response(state, status_code=200 if ready else 503)


async def _answers(pipeline: Pipeline) -> bool:
    try:
        async with asyncio.timeout(2):
            return await pipeline.call("PING") is not None
    except (Unavailable, TimeoutError):
        return False


@get(
    "/metrics",
    opt={OPEN: True},
    security=ANYBODY,
    media_type=MediaType.TEXT,
    tags=["operations"],
    summary="Metrics for Prometheus",
)
async def metrics() -> Response[str]:
    """Counters, gauges and histograms of this process."""
    return Response(generate_latest().decode(), media_type=CONTENT_TYPE_LATEST)


ROUTES = [healthz, readyz, metrics]
