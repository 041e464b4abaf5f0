"""The loop of an agent: show the model the conversation, run the tools it calls, until it has answered."""

import asyncio
import random
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from tertulia.agents import prompt
from tertulia.agents.models import ModelStream
from tertulia.agents.port import Output
from tertulia.agents.steps import Steps
from tertulia.core.briefings import zone
from tertulia.core.errors import AgentLimit, GenerationTimeout, TurnError
from tertulia.core.model import ContextMessage
from tertulia.core.text import cleaned, cleaned_json
from tertulia.core.turns import Answer, Turn
from tertulia.tools.port import Tool

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk, BaseMessage
    from langchain_core.runnables import Runnable

    Model = Runnable[list[BaseMessage], BaseMessage]

_RETRIES = 2
_CALLS = 32  # of tools, in one round


class LocalAgent:
    """An agent of this server: one model, one prompt, some tools, and limits on steps and length."""

    def __init__(
        self, model: "BaseChatModel", name: str, system: str, tools: list[Tool], *,
        window: int, tokens: int, zone: str, timeout: float, steps: int, longest: int,
    ) -> None:  # fmt: skip
        self.model_name = name
        self._speaker = model
        self.window = window
        self._tokens = tokens
        self._zone = zone
        self._system = system
        self._tools = {tool.name: tool for tool in tools}
        self._model = cast(
            "Model", model.bind_tools([declaration(tool) for tool in tools]) if tools else model
        )
        self._timeout = timeout
        self._steps = steps
        self._longest = longest

    def speaks_by(self, model: "BaseChatModel") -> bool:
        return self._speaker is model

    async def answer(
        self, turn: Turn, history: list[ContextMessage], steps: list[ContextMessage], output: Output
    ) -> Answer:
        """Answer the turn's message, going on after the steps that earlier attempts recorded."""
        where = zone(turn.timezone, self._zone)
        history = prompt.affordable(self._system, turn, history, self._tokens, where)
        usage: dict[str, int] = {}
        output.note(shown=[message.seq for message in history] + [turn.trigger_seq], usage=usage)
        shown = prompt.messages(self._system, turn, history, where)
        done = Steps(turn, self._tools, output)
        shown += await done.resume(steps)
        said: list[str] = []
        for _ in range(self._steps):
            reply = _Reply(output, self._longest - sum(map(len, said)), quiet=any(said))
            await self._ask(shown, reply, usage)
            said.append(reply.text)
            calls = reply.tool_calls()
            if not calls:
                return Answer(
                    "".join(said),
                    done.structured,
                    tuple(done.actions),
                    usage or None,
                    self.model_name,
                    tuple(done.used),
                )
            shown += await done.run(calls)
        raise AgentLimit

    async def _ask(self, shown: "list[BaseMessage]", reply: "_Reply", usage: dict[str, int]) -> None:
        """One call of the model. What fails before the first word may be tried again, a little later."""
        for attempt in range(_RETRIES + 1):
            try:
                async with ModelStream(self._model.astream(shown), timeout=self._timeout) as chunks:
                    async for chunk in chunks:
                        await reply.take(chunk)
                        _add_usage(usage, chunk)
                await reply.end()
                return
            except TurnError as error:
                silent = isinstance(
                    error, GenerationTimeout
                )  # who has waited that long should hear of it now
                if reply.begun or silent or not error.temporary or attempt == _RETRIES:
                    raise
                await asyncio.sleep(min(error.retry_after or 0.3 * 2**attempt, 5) * random.uniform(0.5, 1.5))  # noqa: S311


class _Reply:
    """One answer of the model as it comes in: words go out at once, tool calls are gathered."""

    def __init__(self, output: Output, room: int, *, quiet: bool) -> None:
        self._output = output
        self._room = room
        self._parts: list[str] = []
        self._length = 0
        self._calling: list[AIMessageChunk] = []
        self._half = ""
        self.begun = quiet

    @property
    def text(self) -> str:
        return "".join(self._parts)

    async def take(self, chunk: "AIMessageChunk") -> None:
        content = chunk.content
        await self._say(self._whole(content if isinstance(content, str) else str(chunk.text)))
        if chunk.tool_call_chunks:
            self.begun = True
            self._grow(sum(len(call["args"] or "") for call in chunk.tool_call_chunks))
            self._calling.append(chunk)

    async def end(self) -> None:
        """Nothing more comes, not even the other half of a pair."""
        half, self._half = self._half, ""
        await self._say(cleaned(half))

    async def _say(self, text: str) -> None:
        if not text:
            return
        self.begun = True
        self._grow(len(text))
        self._parts.append(text)
        await self._output.text(text)

    def _grow(self, length: int) -> None:
        self._length += length
        if self._length > self._room:
            raise AgentLimit("The answer grew longer than this server allows.")

    def _whole(self, text: str) -> str:
        """What can be passed on now: half a surrogate pair at the end waits for its other half."""
        if text.isascii() and not self._half and "\x00" not in text:
            return text
        text = self._half + text
        self._half = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return cleaned(text[: len(text) - len(self._half)])

    def tool_calls(self) -> list[dict[str, Any]]:
        """The calls the model made, well-formed or not: both kinds are answered."""
        from langchain_core.messages.ai import add_ai_message_chunks

        if not self._calling:
            return []
        first, *rest = self._calling
        whole = add_ai_message_chunks(first, *rest)
        made = [(call["id"], call["name"], call["args"]) for call in whole.tool_calls]
        broken = [(call["id"], call["name"], None) for call in whole.invalid_tool_calls]
        if len(made) + len(broken) > _CALLS:
            raise AgentLimit("The agent wanted to use more tools at once than this server allows.")
        return [
            _call(whole, name or str(uuid4()), tool or "", arguments)
            for name, tool, arguments in made + broken
        ]


def _call(whole: "AIMessageChunk", name: str, tool: str, arguments: object) -> dict[str, Any]:
    known = prompt.signature(whole, name)
    call: dict[str, Any] = cleaned_json({"id": name, "name": tool, "arguments": arguments})
    return call | ({"signature": known} if known else {})


def _add_usage(usage: dict[str, int], chunk: "AIMessageChunk") -> None:
    """A stream reports its usage in parts that add up."""
    counted = chunk.usage_metadata
    if counted:
        for name in ("input_tokens", "output_tokens", "total_tokens"):
            usage[name] = usage.get(name, 0) + counted[name]


def declaration(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
