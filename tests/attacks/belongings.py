"""Ann and all that is hers: something in every table, and how it looks to one who sees everything."""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import asyncpg
import httpx

from tests.support.client import User
from tests.support.observe import eventually
from tests.support.standing import act, made_agent, post, standing

TABLES = """
    SELECT c.relname AS name,
           (SELECT a.attname FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attname IN ('user_id', 'to_user_id')) AS owner
      FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid AND t.attname IN ('tenant', 'tenant_id')
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1
"""
TRANSIENT = {"unindexed"}  # empty once the sweeper has seen what was said
KNOWN_IN_THE_TENANT = {"agent", "prompt", "tenant"}

Rows = dict[str, set[str]]


@dataclass(frozen=True)
class Ann:
    """`things` are her names and words; a stranger who sees one of them has broken in."""

    user: User
    admin: User
    things: dict[str, str] = field(repr=False)

    def hidden_from(self, tenant: str) -> dict[str, str]:
        """What nobody of that tenant may be told."""
        inside = tenant == self.user.tenant
        return {k: v for k, v in self.things.items() if not (inside and k in KNOWN_IN_THE_TENANT)}


async def ann_at(url: str, postgres: "asyncpg.Connection[Any]") -> Ann:
    """Somebody new who has said, been told, deleted and kept something; all that follows from it has happened."""
    mark = uuid4().hex[:8]
    word = {
        name: f"{name}-{mark}"
        for name in (
            "tenant", "handle", "said", "answer", "agent", "prompt", "title", "summary", "told", "key", "dedupe",
            "email",
        )
    }  # fmt: skip
    admin = User(url, "ada", word["tenant"], role="admin")
    ann = User(url, "ann", word["tenant"], email=word["email"])
    await ann.http.get("/briefings")
    await made_agent(admin, id=word["agent"], prompt=word["prompt"])
    done = await ann.send(
        f'[[text {{"said": "{word["answer"]}"}}]] {word["said"]}', word["handle"], key=word["key"]
    )
    failed, gone = await ann.send('[[failure {"status": 400}]]'), await ann.send("Forget this.")
    for sent in (done, failed, gone):
        await ann.answered(sent)
    assert (await ann.http.delete(f"/api/conversations/{gone['conversation_id']}")).status_code == 200
    about = {"user_id": "ann", "agent_id": word["agent"], "title": word["title"], "summary": word["summary"]}
    briefings = [
        (await post(admin, **about, **more)).json()["id"] for more in ({"dedupe_key": word["dedupe"]}, {})
    ]
    card = (await act(ann, briefings[1], "start_conversation")).json()["message_id"]
    talk = await standing(ann, word["agent"])
    notification = uuid4()
    await postgres.execute(
        "INSERT INTO notifications (tenant, id, from_user_id, to_user_id, message)"
        " VALUES ($1, $2, 'ada', 'ann', $3)",
        word["tenant"], notification, word["told"],
    )  # fmt: skip
    things = word | {
        "message": done["message_id"],
        "turn": done["turn_id"],
        "failed_turn": failed["turn_id"],
        "conversation": done["conversation_id"],
        "gone": gone["conversation_id"],
        "session": await ann.session_id(done),
        "standing": talk["id"],
        "standing_session": talk["sessionId"],
        "briefing": briefings[0],
        "started": briefings[1],
        "card": card,
        "notification": str(notification),
    }
    await eventually(lambda: _settled(postgres, word["tenant"]))
    return Ann(ann, admin, things)


async def _settled(postgres: "asyncpg.Connection[Any]", tenant: str) -> bool:
    """Nothing of this tenant is still being worked on."""
    return not await postgres.fetchval(
        "SELECT EXISTS (SELECT FROM unindexed WHERE tenant = $1)"
        " OR EXISTS (SELECT FROM turns WHERE tenant = $1 AND (ended_at IS NULL OR terminal IS NOT NULL))"
        " OR EXISTS (SELECT FROM conversations WHERE tenant = $1 AND lease_owner IS NOT NULL)",
        tenant,
    )


async def rows_of(postgres: "asyncpg.Connection[Any]", tenant: str, *, but: str = "") -> Rows:
    """Every row of a tenant in every table that the catalogue has, but those of one user, once all is quiet."""
    await eventually(lambda: _settled(postgres, tenant))
    found: Rows = {}
    for table in await postgres.fetch(TABLES):
        owner = table["owner"] or ("id" if table["name"] == "users" else None)
        rows = await postgres.fetch(
            f"SELECT to_jsonb(t)::text AS row FROM {table['name']} t WHERE tenant = $1"
            + (f" AND {owner} <> $2" if owner else " AND $2::text IS NOT NULL"),
            tenant, but,
        )  # fmt: skip
        found[table["name"]] = {row["row"] for row in rows}
    return found


async def fetched(
    http: httpx.AsyncClient, method: str, path: str, *, body: Any = None, **given: Any
) -> tuple[int, str]:
    """The status of an answer, and all that is in it; of a stream that does not end, what comes in a second."""
    content = None if body is None else json.dumps(body).encode()
    async with http.stream(method, path, content=content, **given) as response:
        streamed = response.headers.get("content-type", "").startswith("text/event-stream")
        parts: list[bytes] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1 if streamed else 20):
                async for part in response.aiter_bytes():
                    parts.append(part)  # noqa: PERF401  what came before the time ran out counts
        return response.status_code, f"{dict(response.headers)} {b''.join(parts).decode()}"
