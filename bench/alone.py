"""The model object alone: the same LangChain object, reading the same model server, with nothing around it.

Reads commands from standard input, one JSON object a line, and answers each with one line.
"""

import asyncio
import json
import sys
import time
from typing import Any

import uvloop
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from bench.wire import at_times
from tertulia.agents.loop import declaration
from tertulia.agents.models import make_model
from tertulia.tools.notify_user import NotifyUser
from tertulia.tools.present import Present

WORDS = "Please tell me about the weather in Madrid today."


def shown(history: int, prompt: str, reply: str) -> list[BaseMessage]:
    """As many messages as the server would show, of the same lengths."""
    said = [AIMessage(reply) if index % 2 else HumanMessage(WORDS) for index in range(history)]
    return [SystemMessage(prompt), *said, HumanMessage(WORDS)]


async def answer(model: Any, messages: list[BaseMessage]) -> float:
    """Read one whole answer; yields the seconds to its first words."""
    began, first = time.perf_counter(), 0.0
    async for chunk in model.astream(messages):
        if chunk.content and not first:
            first = time.perf_counter() - began
    return first


async def closed(model: Any, messages: list[BaseMessage], parallel: int, turns: int) -> dict[str, Any]:
    """So many turns by so many loops; CPU and wall time."""
    left = iter(range(turns))
    firsts: list[float] = []

    async def loop() -> None:
        for _ in left:
            firsts.append(await answer(model, messages))  # noqa: PERF401  one after another

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(loop() for _ in range(parallel)))
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "firsts": firsts}


def stock(model_url: str) -> Any:
    """LangChain's own Gemini model, as anybody would make it."""
    from langchain_google_genai import ChatGoogleGenerativeAI

    return ChatGoogleGenerativeAI(
        model="gemini-2.5-flash", api_key="bench", base_url=model_url, timeout=60, max_retries=1
    )


def ours(model_url: str) -> Any:
    """The model object that the server uses."""
    return make_model("google_genai:gemini-2.5-flash", base_url=model_url, google_api_key="bench", timeout=60)


async def main(model_url: str, which: str) -> None:
    made = stock(model_url) if which == "stock" else ours(model_url)
    tools: list[Any] = [NotifyUser(None, None), Present()]  # type: ignore[arg-type]
    model = made.bind_tools([declaration(tool) for tool in tools])
    loop = asyncio.get_running_loop()
    print(json.dumps("ready"), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        messages = shown(command["history"], command["prompt"], command["reply"])
        if "times" in command:
            result: Any = {"firsts": await at_times(command["times"], lambda _, m=messages: answer(model, m))}
        else:
            result = await closed(model, messages, command["parallel"], command["turns"])
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
