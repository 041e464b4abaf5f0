"""Whole turns: what they cost, and how soon their first words come."""

import random
import statistics
from uuid import uuid4

from bench.helper import Helper
from bench.rows import ROUNDS, Row, row
from bench.stage import TENANT, Stage, tokens
from bench.wire import cpu_seconds, rss_bytes
from tertulia.settings import Settings

CHUNKS = 20
REPLY = "Hello! " * CHUNKS


async def turns(stage: Stage) -> list[Row]:
    """(b, c) CPU of a streamed turn, and the time to its first words, beside the model object alone."""
    parallel, number = 32, 320
    cpu: list[float] = []
    alone_cpu: list[float] = []
    stock_cpu: list[float] = []
    rates: list[float] = []
    single: list[float] = []
    paced: list[float] = []
    rows: list[Row] = []
    with stage.model(CHUNKS, 0.05) as model_url, stage.server(model_url=model_url) as server:
        idle = rss_bytes(server.pid)
        with (
            Helper("bench.alone", model_url, "ours") as alone,
            Helper("bench.alone", model_url, "stock") as stock,
            Helper("bench.load") as load,
        ):
            load.ask(
                do="open", url=server.url, tokens=tokens(parallel, "turns"), sessions=f"t{uuid4().hex[:6]}"
            )
            after = rss_bytes(server.pid)
            load.ask(do="closed", parallel=parallel, turns=parallel * 10)  # until all windows are full
            same = {"history": 19, "prompt": prompt("turns-10"), "reply": REPLY}
            alone.ask(parallel=parallel, turns=64, **same)
            stock.ask(parallel=parallel, turns=64, **same)
            for _ in range(ROUNDS):
                before = cpu_seconds(server.pid)
                result = load.ask(do="closed", parallel=parallel, turns=number)
                cpu.append((cpu_seconds(server.pid) - before) / number)
                rates.append(number / result["wall"])
                alone_cpu.append(alone.ask(parallel=parallel, turns=number, **same)["cpu"] / number)
                stock_cpu.append(stock.ask(parallel=parallel, turns=number, **same)["cpu"] / number)
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
        row("b", "CPU of the same model object alone", statistics.median(alone_cpu) * 1000, "ms"),
        row("b", "CPU added", statistics.median(added), "ms", 2.5),
        row("b", "CPU of LangChain's own model alone", statistics.median(stock_cpu) * 1000, "ms"),
        row("b", "turns", statistics.median(rates), "/s"),
        row("c", "first words later, one conversation", statistics.median(single) * 1000, "ms", 8),
        row(
            "c", f"first words later, 32 open loop at {rate:.0f}/s", statistics.median(paced) * 1000, "ms", 20
        ),
        row("m", "memory before the first turn", idle / 1e6, "MB", 120),
        row("m", "memory after the first Gemini turns", after / 1e6, "MB"),
    ]
    return rows


def prompt(user: str) -> str:
    """What the server would tell the model about itself and this user."""
    base = Settings.model_fields["agent_prompt"].default
    return f"{base}\nYou are talking with the user {user!r} of the organisation '{TENANT}'."


def _arrivals(rate: float, seconds: float) -> list[float]:
    """Random arrivals, the same in every run."""
    dice, at, times = random.Random(7), 0.0, []  # noqa: S311
    while at < seconds:
        at += dice.expovariate(rate)
        times.append(at)
    return times
