"""Searching."""

import statistics
from urllib.parse import quote
from uuid import uuid4

from tests.support.client import token

from bench.helper import Helper
from bench.rows import ROUNDS, Row, row
from bench.stage import TENANT, Stage

MESSAGES, OWNERS = 1_000_000, 500


async def finding(stage: Stage) -> list[Row]:
    """(h) One of 500 users, who own 0.2 % of a million messages each, looks for a word that every tenth has."""
    conversations = [uuid4() for _ in range(OWNERS)]
    for number, name in enumerate(conversations):
        await stage.conversations(f"owner-{number}", [name])
    for start in range(0, OWNERS, 50):
        await _fill(stage, conversations, start, start + 50)
    await stage.sql("ANALYZE search")
    words = {"English, in every tenth message": "harbour", "Chinese, in every tenth message": "返工率"}
    rows: list[Row] = []
    with stage.server("--no-worker") as server, Helper("bench.load") as load:
        for what, word in words.items():
            found = [
                load.ask(
                    do="fetch", url=server.url, token=token("owner-7", TENANT), rounds=40,
                    paths=[f"/api/search?q={quote(word)}"],
                )["seconds"]
                for _ in range(ROUNDS)
            ]  # fmt: skip
            rows.append(row("h", f"search of a million: {what}", statistics.median(found) * 1000, "ms"))
    await stage.sql("TRUNCATE search, unindexed")
    await stage.sql("DELETE FROM conversations WHERE user_id LIKE 'owner-%'")
    return rows


async def _fill(stage: Stage, conversations: list[object], first: int, end: int) -> None:
    """Messages of these owners, with their terms; triggers and keys are checked elsewhere and cost minutes here."""
    await stage.sql(
        """WITH said AS (
               INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role,
                                     content_type, content)
               SELECT $1, gen_random_uuid(), ($2::uuid[])[o + 1], n, n, 'owner-' || o, 'x', 'user', 'text',
                      to_jsonb('message ' || n || ' of ' || o || ' about ' || md5(o || '-' || n)
                               || CASE WHEN n % 10 = 0 THEN ' the harbour 代码返工率50%' ELSE ' 天气很好' END)
                 FROM generate_series($3::int, $4::int - 1) AS o, generate_series(1, $5::int) AS n
               RETURNING tenant, user_id, id, conversation_id, content)
           INSERT INTO search (tenant, user_id, message_id, conversation_id, terms)
           SELECT tenant, user_id, id, conversation_id,
                  api.terms(content #>> '{}') || array_to_tsvector(ARRAY[api.owner_term(tenant, user_id)])
             FROM said""",
        TENANT, conversations, first, end, MESSAGES // OWNERS,
    )  # fmt: skip
