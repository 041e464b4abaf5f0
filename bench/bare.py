"""What we measure against: bare Starlette with asyncpg and redis-py, doing the least that could be done."""

import sys
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import uvicorn
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_PAGE = """SELECT id, seq, turn_id, agent_id, role, content_type, content::text AS content, created_at
             FROM messages WHERE tenant = $1 AND conversation_id = $2 AND seq < $3 ORDER BY seq DESC LIMIT $4"""


def application(database_url: str, redis_url: str) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> Any:
        app.state.pool = await asyncpg.create_pool(database_url, min_size=16, max_size=16)
        app.state.redis = Redis.from_url(redis_url)
        yield

    async def accept(request: Request) -> Response:
        """One insert, one XADD."""
        sent = msgspec.json.decode(await request.body())
        name = uuid4()
        await request.app.state.pool.execute(
            "INSERT INTO bare (id, session_id, content) VALUES ($1, $2, $3)",
            name,
            sent["session_id"],
            sent["content"],
        )
        await request.app.state.redis.xadd(
            "bare", {"message_id": str(name), "session_id": sent["session_id"]}
        )
        body = msgspec.json.encode({"status": "queued", "message_id": name})
        return Response(body, 202, media_type="application/json")

    async def page(request: Request) -> Response:
        """One fetch, encoded."""
        query = request.query_params
        rows = await request.app.state.pool.fetch(
            _PAGE, query["tenant"], query["conversation"], int(query["before"]), int(query["limit"])
        )
        found = [{**row, "content": msgspec.Raw(row["content"].encode())} for row in rows]
        return Response(msgspec.json.encode(found), media_type="application/json")

    return Starlette(
        routes=[Route("/accept", accept, methods=["POST"]), Route("/page", page)], lifespan=lifespan
    )


def main() -> None:
    database_url, redis_url, port = sys.argv[1:]
    app = application(database_url, redis_url)

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print("ready", flush=True)

    config = uvicorn.Config(
        app, port=int(port), loop="uvloop", http="httptools", access_log=False, log_level="warning"
    )
    Server(config).run()


if __name__ == "__main__":
    main()
