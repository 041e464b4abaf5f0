"""Reading long conversations."""

import statistics
from uuid import UUID, uuid4

from tests.support.client import token

from bench.helper import Helper
from bench.rows import ROUNDS, Row, row
from bench.stage import TENANT, Stage


async def history(stage: Stage) -> list[Row]:
    """(e, f) Reading long conversations."""
    long, short, middle = uuid4(), uuid4(), uuid4()
    await stage.conversations("reader", [long, short, middle])
    for name, size in ((long, 100_000), (short, 100), (middle, 2000)):
        await _fill(stage, name, size)
    await stage.sql("ANALYZE messages")
    ratios: list[float] = []
    paging: list[float] = []
    newest: list[float] = []
    pages: list[float] = []
    opening: list[float] = []
    through: list[float] = []
    who = token("reader", TENANT)
    with stage.server("--no-worker") as server, stage.bare() as bare_url, Helper("bench.load") as load:
        for _ in range(ROUNDS):
            seconds = [
                load.ask(
                    do="fetch",
                    url=server.url,
                    token=who,
                    rounds=200,
                    paths=[f"/api/conversations/{n}?limit=50"],
                )
                for n in (long, short)
            ]
            newest.append(seconds[0]["seconds"])
            ratios.append(seconds[0]["seconds"] / seconds[1]["seconds"])
            befores = range(2001, 1, -200)
            ours = [f"/api/conversations/{middle}?limit=200&before={before}" for before in befores]
            bare = [
                f"/page?tenant={TENANT}&conversation={middle}&before={before}&limit=200" for before in befores
            ]
            mine = load.ask(do="fetch", url=server.url, token=who, rounds=10, paths=ours)["seconds"]
            theirs = load.ask(do="fetch", url=bare_url, token=None, rounds=10, paths=bare)["seconds"]
            pages.append(mine)
            paging.append(mine / theirs)
            opened = [
                load.ask(
                    do="fetch", url=server.url, token=who, rounds=200,
                    paths=[f"/conversations/{n}", f"/conversations/{n}/messages?limit=50"],
                )["seconds"]
                for n in (long, short)
            ]  # fmt: skip
            opening.append(opened[0] / opened[1])
            deep = [
                load.ask(
                    do="fetch", url=server.url, token=who, rounds=20,
                    paths=[f"/conversations/{long}/messages?limit=200&before={at}" for at in pages_from(start)],
                )["seconds"]
                for start in (50_001, 100_001)
            ]  # fmt: skip
            through.append(deep[0] / deep[1])
    await stage.sql("DELETE FROM conversations WHERE user_id = 'reader'")
    return [
        row("e", "newest 50 of 100,000 messages", statistics.median(newest) * 1000, "ms"),
        row("e", "over the same of 100", statistics.median(ratios), "×", 1.5),
        row("e", "opening one of 100,000 messages, over one of 100", statistics.median(opening), "×", 1.5),
        row("e", "pages of 200 from its middle, over its end", statistics.median(through), "×", 1.5),
        row("f", "2,000 messages in pages of 200", statistics.median(pages) * 1000, "ms"),
        row("f", "over a bare fetch and encode", statistics.median(paging), "×", 1.5),
    ]


def pages_from(start: int) -> range:
    """Ten pages of 200, each before the one before it."""
    return range(start, start - 2000, -200)


async def _fill(stage: Stage, conversation: UUID, size: int) -> None:
    await stage.sql(
        """INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role,
                                 content_type, content)
           SELECT $1, gen_random_uuid(), $2, n, n, 'reader', 'x', CASE WHEN n % 2 = 1 THEN 'user' ELSE 'assistant' END,
                  'text', to_jsonb('message number ' || n || repeat(' and some more words', 10))
             FROM generate_series(1, $3::int) AS n""",
        TENANT, conversation, size,
    )  # fmt: skip
    await stage.sql("UPDATE conversations SET last_seq = $2 WHERE id = $1", conversation, size)
