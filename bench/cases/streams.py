"""Long answers over server-sent events."""

import statistics

from bench.cases.turns import prompt
from bench.helper import Helper
from bench.rows import ROUNDS, Row, row
from bench.stage import Stage, tokens
from bench.wire import cpu_seconds

CHUNKS = 500
REPLY = "Hello! " * CHUNKS


async def streams(stage: Stage) -> list[Row]:
    """(g) Answers of 500 chunks at 32 in parallel: CPU per chunk of the model, characters delivered a second."""
    parallel, number = 32, 64
    cpu: list[float] = []
    alone_cpu: list[float] = []
    stock_cpu: list[float] = []
    characters: list[float] = []
    alone_characters: list[float] = []
    events: list[float] = []
    with (
        stage.model(CHUNKS, 0.05) as model_url,
        stage.server(model_url=model_url) as server,
        Helper("bench.alone", model_url, "ours") as alone,
        Helper("bench.alone", model_url, "stock") as stock,
        Helper("bench.load") as load,
    ):
        load.ask(do="standing", url=server.url, tokens=tokens(parallel, "streams"))
        load.ask(do="stream", parallel=parallel, turns=parallel * 10)  # until all windows are full
        same = {"history": 19, "prompt": prompt("streams-10"), "reply": REPLY}
        alone.ask(parallel=parallel, turns=32, **same)
        stock.ask(parallel=parallel, turns=32, **same)
        for _ in range(ROUNDS):
            before = cpu_seconds(server.pid)
            result = load.ask(do="stream", parallel=parallel, turns=number)
            cpu.append((cpu_seconds(server.pid) - before) / number / CHUNKS)
            characters.append(result["characters"] / result["wall"])
            events.append(result["events"] / number)
            result = alone.ask(parallel=parallel, turns=number, **same)
            alone_cpu.append(result["cpu"] / number / CHUNKS)
            alone_characters.append(number * len(REPLY) / result["wall"])
            stock_cpu.append(stock.ask(parallel=parallel, turns=number, **same)["cpu"] / number / CHUNKS)
    ratios = [mine / theirs for mine, theirs in zip(cpu, alone_cpu, strict=True)]
    over_stock = [mine / theirs for mine, theirs in zip(cpu, stock_cpu, strict=True)]
    return [
        row("g", "characters delivered over SSE", statistics.median(characters), "/s"),
        row("g", "characters read from the same model object", statistics.median(alone_characters), "/s"),
        row("g", "events an answer of 500 chunks became", statistics.median(events), ""),
        row("g", "CPU per chunk, one serve process", statistics.median(cpu) * 1e6, "µs"),
        row("g", "CPU per chunk, the same model object alone", statistics.median(alone_cpu) * 1e6, "µs"),
        row("g", "ratio", statistics.median(ratios), "×", 1.5),
        row("g", "CPU per chunk, LangChain's own model alone", statistics.median(stock_cpu) * 1e6, "µs"),
        row("g", "ratio", statistics.median(over_stock), "×", 1.5),
    ]
