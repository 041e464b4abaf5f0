"""Reading one conversation where there are very many messages: the running server finds them by their index."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from tertulia.embedded import Services
from tests.scenarios.conftest import Someone
from tests.support.backends import fresh_database, of_superuser
from tests.support.client import User
from tests.support.instance import Instance
from tests.support.observe import eventually

# 60 messages in each of 200 conversations, here one and there one, as they come when many talk at once.
MANY = """
    WITH made AS (
        INSERT INTO conversations (tenant, id, user_id, title, session_id, last_seq)
        SELECT 'acme', gen_random_uuid(), $1, 'c' || c, 'session ' || c, 60 FROM generate_series(1, 200) c
        RETURNING id, title
    )
    INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role, content_type,
                          content)
    SELECT 'acme', gen_random_uuid(), id, n, n, $1, 'h', CASE n % 2 WHEN 1 THEN 'user' ELSE 'assistant' END, 'text',
           to_jsonb(title || ' m' || n)
      FROM made, generate_series(1, 60) n ORDER BY n, id
"""
SCANS = """
    SELECT seq_scan, t.idx_scan, i.idx_scan
      FROM pg_stat_user_tables t JOIN pg_stat_user_indexes i USING (relid)
     WHERE t.relname = 'messages' AND indexrelname = 'idx_messages_conversation'
"""


class Scans(NamedTuple):
    """How often messages have been looked for: one after another, by any index, by that of their conversation."""

    in_turn: int
    by_index: int
    by_conversation: int


class Place(NamedTuple):
    """A server whose database nobody else uses, and that database as the superuser sees it."""

    server: Instance
    database: "asyncpg.Connection[Any]"

    async def scans(self) -> Scans:
        row = await self.database.fetchrow(SCANS)
        assert row
        return Scans(*row)


@pytest.fixture
async def place(backends: Services, settings: dict[str, Any], folder: Path) -> AsyncGenerator[Place]:
    url = await fresh_database(backends, "tertulia_many_messages")
    database = await asyncpg.connect(of_superuser(url))
    own = settings | {"database_url": url}
    with Instance("serve", folder, "--no-worker", "--port", "0", **own) as server:
        yield Place(server, database)
    await database.close()


async def read(user: User, conversation: str, **query: Any) -> tuple[list[str], dict[str, Any]]:
    """What is said on a page of a conversation, and the page."""
    response = await user.http.get(f"/conversations/{conversation}/messages", params={"limit": 20} | query)
    assert response.status_code == 200, response.text
    return [message["content"] for message in response.json()["messages"]], response.json()


@pytest.mark.scenario("001", "Message indexing for fast retrieval")
async def test_each_page_of_a_conversation_among_twelve_thousand_messages_takes_one_look_into_the_index(
    place: Place, someone: Someone
) -> None:
    ann = await someone("ann", at=place.server)
    await ann.http.get("/briefings")
    await place.database.execute(MANY, ann.name)
    assert await place.database.fetchval("SELECT count(*) FROM messages") == 12_000
    rows = await place.database.fetch("SELECT title, id FROM conversations")
    names = {row["title"]: str(row["id"]) for row in rows}
    await place.database.execute("SELECT pg_stat_force_next_flush()")
    before = await place.scans()

    for title in (
        "c1",
        "c77",
        "c78",
        "c120",
        "c199",
        "c200",
    ):  # a plan for any of them is made after five calls
        said, newest = await read(ann, names[title])
        assert said == [f"{title} m{n}" for n in range(41, 61)]
        said, middle = await read(ann, names[title], before=newest["before"])
        assert said == [f"{title} m{n}" for n in range(21, 41)]
        said, _ = await read(ann, names[title], after=middle["after"])
        assert said == [f"{title} m{n}" for n in range(41, 61)]

    async def counted() -> bool:  # the database adds up what its connections have done within ten seconds
        return (await place.scans()).by_index >= before.by_index + 18

    await eventually(counted, 15)
    assert await place.scans() == (before.in_turn, before.by_index + 18, before.by_conversation + 18)
