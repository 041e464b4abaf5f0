"""Accepting messages."""

import statistics

from bench.helper import Helper
from bench.rows import ROUNDS, Row, row
from bench.stage import Stage, tokens


async def acceptance(stage: Stage) -> list[Row]:
    """(a) 202s a second at 32 connections, no worker, beside one insert and one XADD in bare Starlette."""
    await stage.sql("CREATE TABLE IF NOT EXISTS bare (id uuid PRIMARY KEY, session_id text, content text,"
                    " created_at timestamptz NOT NULL DEFAULT now())")  # fmt: skip
    ours: list[float] = []
    bare: list[float] = []
    who = tokens(32, "accept")
    with stage.server("--no-worker") as server, stage.bare() as bare_url, Helper("bench.load") as load:
        for number in range(ROUNDS):
            for url, path, rates in ((server.url, "/api/messages", ours), (bare_url, "/accept", bare)):
                answer = load.ask(
                    do="accept", url=url, path=path, tokens=who, seconds=3, sessions=f"a{number}"
                )
                rates.append(answer["rate"])
    await stage.sql("DELETE FROM conversations")
    ratios = [mine / theirs for mine, theirs in zip(ours, bare, strict=True)]
    return [
        row("a", "202 answers, ours", statistics.median(ours), "/s"),
        row("a", "202 answers, bare insert and XADD", statistics.median(bare), "/s"),
        row("a", "ratio", statistics.median(ratios), "×", 0.7, least=True),
    ]
