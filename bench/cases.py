"""The measurements. Each yields rows: what, how much, what it may be, and whether it is."""

import asyncio
import random
import statistics
from typing import Any
from uuid import UUID, uuid4

from tests.support.client import token

from bench.helper import Helper
from bench.stage import TENANT, Stage, tokens
from bench.wire import cpu_seconds, rss_bytes
from tertulia.settings import Settings

Row = dict[str, Any]
ROUNDS = 5
CHUNKS = 20
REPLY = " ".join(f"word{index}" for index in range(CHUNKS))


def row(
    case: str, what: str, value: float, unit: str, limit: float | None = None, *, least: bool = False
) -> Row:
    holds = None if limit is None else (value >= limit if least else value <= limit)
    return {
        "case": case,
        "what": what,
        "value": value,
        "unit": unit,
        "limit": limit,
        "least": least,
        "holds": holds,
    }


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


async def turns(stage: Stage) -> list[Row]:
    """(b, c) CPU of a streamed turn, and the time to its first words, beside the model object alone."""
    parallel, number = 32, 320
    cpu: list[float] = []
    alone_cpu: list[float] = []
    rates: list[float] = []
    single: list[float] = []
    paced: list[float] = []
    rows: list[Row] = []
    with stage.model(CHUNKS, 0.05) as model_url, stage.server(model_url=model_url) as server:
        idle = rss_bytes(server.pid)
        with Helper("bench.alone", model_url) as alone, Helper("bench.load") as load:
            load.ask(
                do="open", url=server.url, tokens=tokens(parallel, "turns"), sessions=f"t{uuid4().hex[:6]}"
            )
            after = rss_bytes(server.pid)
            load.ask(do="closed", parallel=parallel, turns=parallel * 10)  # until all windows are full
            same = {"history": 19, "prompt": _prompt(), "reply": REPLY}
            alone.ask(parallel=parallel, turns=64, **same)
            for _ in range(ROUNDS):
                before = cpu_seconds(server.pid)
                result = load.ask(do="closed", parallel=parallel, turns=number)
                cpu.append((cpu_seconds(server.pid) - before) / number)
                rates.append(number / result["wall"])
                alone_cpu.append(alone.ask(parallel=parallel, turns=number, **same)["cpu"] / number)
            for _ in range(ROUNDS):
                mine = load.ask(do="closed", parallel=1, turns=20)["firsts"]
                base = alone.ask(parallel=1, turns=20, **same)["firsts"]
                single.append(statistics.median(mine) - statistics.median(base))
            rate = statistics.median(rates) / 2
            for _ in range(ROUNDS):
                times = _arrivals(rate, 6)
                mine = load.ask(do="paced", times=times)["firsts"]
                base = alone.ask(times=times, **same)["firsts"]
                paced.append(statistics.median(mine) - statistics.median(base))
    added = [(mine - base) * 1000 for mine, base in zip(cpu, alone_cpu, strict=True)]
    rows += [
        row("b", "CPU of a streamed turn, one serve process", statistics.median(cpu) * 1000, "ms"),
        row("b", "CPU of the model object alone", statistics.median(alone_cpu) * 1000, "ms"),
        row("b", "CPU added", statistics.median(added), "ms", 2.5),
        row("b", "turns", statistics.median(rates), "/s"),
        row("c", "first words later, one conversation", statistics.median(single) * 1000, "ms", 8),
        row(
            "c", f"first words later, 32 open loop at {rate:.0f}/s", statistics.median(paced) * 1000, "ms", 20
        ),
        row("m", "memory before the first turn", idle / 1e6, "MB", 120),
        row("m", "memory after the first Gemini turns", after / 1e6, "MB"),
    ]
    return rows


def _prompt() -> str:
    base = Settings.model_fields["agent_prompt"].default
    return f"{base}\nYou are talking with the user 'turns-10' of the organisation '{TENANT}'."


def _arrivals(rate: float, seconds: float) -> list[float]:
    """Random arrivals, the same in every run."""
    dice, at, times = random.Random(7), 0.0, []  # noqa: S311
    while at < seconds:
        at += dice.expovariate(rate)
        times.append(at)
    return times


async def sockets(stage: Stage) -> list[Row]:
    """(d) Memory of 5,000 sockets, each listening to a session of its own, after each received an event."""
    number = 5000
    names = [uuid4() for _ in range(number)]
    await _conversations(stage, "crowd", names)
    with stage.server("--no-worker") as server, Helper("bench.load") as load:
        who = token("crowd", TENANT)
        load.ask(do="crowd", url=server.url, token=who, sessions=[f"s-{name}" for name in names[:50]])
        await _tell(stage, names[:50])
        load.ask(do="receive")
        load.ask(do="leave")
        await asyncio.sleep(1)
        before = rss_bytes(server.pid)
        load.ask(do="crowd", url=server.url, token=who, sessions=[f"s-{name}" for name in names])
        await _tell(stage, names)
        load.ask(do="receive")
        grown = (rss_bytes(server.pid) - before) / number
    await stage.sql("DELETE FROM conversations WHERE user_id = 'crowd'")
    return [row("d", "memory of a listening socket", grown / 1000, "kB", 40)]


async def _conversations(stage: Stage, user: str, names: list[UUID]) -> None:
    await stage.sql("INSERT INTO users (tenant, id) VALUES ($1, $2) ON CONFLICT DO NOTHING", TENANT, user)
    await stage.sql(
        "INSERT INTO conversations (tenant, id, user_id, session_id)"
        " SELECT $1, name, $2, 's-' || name FROM unnest($3::uuid[]) AS name",
        TENANT, user, names,
    )  # fmt: skip


async def _tell(stage: Stage, names: list[UUID]) -> None:
    """Append an event to each log, as a worker does."""
    from tertulia.events.log import APPEND, EventLog, session_log
    from tertulia.valkey import Pipeline, connect

    client = connect(stage.services.redis_url)
    pipeline = Pipeline(client, APPEND)
    log = EventLog(pipeline, 1000)
    event = b'{"type":"turn_end","conversationId":"x","data":{"status":"done"}}'
    for name in names:
        await log.append(session_log(TENANT, name), [event])
    await pipeline.close()
    await client.aclose()


async def history(stage: Stage) -> list[Row]:
    """(e, f) Reading long conversations."""
    long, short, middle = uuid4(), uuid4(), uuid4()
    await _conversations(stage, "reader", [long, short, middle])
    for name, size in ((long, 100_000), (short, 100), (middle, 2000)):
        await _fill(stage, name, size)
    await stage.sql("ANALYZE messages")
    ratios: list[float] = []
    paging: list[float] = []
    newest: list[float] = []
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
            paging.append(mine / theirs)
    await stage.sql("DELETE FROM conversations WHERE user_id = 'reader'")
    return [
        row("e", "newest 50 of 100,000 messages", statistics.median(newest) * 1000, "ms"),
        row("e", "over the same of 100", statistics.median(ratios), "×", 1.5),
        row("f", "2,000 messages in pages of 200", mine * 1000, "ms"),
        row("f", "over a bare fetch and encode", statistics.median(paging), "×", 1.5),
    ]


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


CASES = {"a": acceptance, "b": turns, "d": sockets, "e": history}
