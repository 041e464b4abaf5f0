"""The model that answers when no other is set: offline, honest about what it is, and able to call tools."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, cast
from uuid import uuid4

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

# Letters of scripts that put no spaces between words.
LETTERS = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
CJK = re.compile(rf"[{LETTERS}]")
WORD = re.compile(rf"\s*(?:[{LETTERS}]|[^\s{LETTERS}]+)|\s+")
TOOL = re.compile(r"^[ \t]*/tool\s+(\S+)[ \t]*(.*)$", re.MULTILINE)
SLOW = re.compile(r"^[ \t]*/slow\s+(\d+(?:\.\d+)?)\s*", re.MULTILINE)

LONGEST_SECONDS = 60.0
QUOTED_CHARS = 2000
MOST_CALLS = 8
MOST_CHUNKS = 400

ENGLISH = {
    "who": "I am Tertulia's built-in demo model, no AI. For one, set GOOGLE_API_KEY or TERTULIA_MODEL.",
    "echo": "You said: “{said}”",
    "none": "I was shown no earlier messages.",
    "one": "I was shown 1 earlier message.",
    "many": "I was shown {count} earlier messages.",
    "back": "The tool {name} answered: {result}",
    "unknown": "I have no tool {name}. I can call: {tools}.",
    "no_tools": "I have no tool {name}, and no others either.",
    "arguments": 'The arguments of {name} are no JSON object. For example: /tool {name} {{"key": "value"}}',
}
CHINESE = {
    "who": "我是 Tertulia 内置的演示模型，不是 AI：设置 GOOGLE_API_KEY 或 TERTULIA_MODEL 即可与 AI 对话。",
    "echo": "你说的是：“{said}”",
    "none": "我没有看到更早的消息。",
    "one": "我看到了 1 条更早的消息。",
    "many": "我看到了 {count} 条更早的消息。",
    "back": "工具 {name} 返回：{result}",
    "unknown": "我没有工具 {name}。我可以调用：{tools}。",
    "no_tools": "我没有工具 {name}，也没有其他工具。",
    "arguments": '{name} 的参数不是 JSON 对象。例如：/tool {name} {{"key": "value"}}',
}


class Reply(NamedTuple):
    """What the demo answers: text, or tool calls, and over how many seconds."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    seconds: float = 0.0


def reply_to(messages: Sequence[BaseMessage], tools: Sequence[str]) -> Reply:
    """The answer to the last thing that was said, or to the results of the tools that were called."""
    at = max((n for n, message in enumerate(messages) if isinstance(message, HumanMessage)), default=-1)
    said = messages[at].text if at >= 0 else ""
    words = CHINESE if CJK.search(said) else ENGLISH
    slow = SLOW.search(said)
    seconds = min(float(slow[1]), LONGEST_SECONDS) if slow else 0.0
    if results := _results(messages):
        names = _names_of_calls(messages)
        return Reply("\n".join(_came_back(result, names, words) for result in results), seconds=seconds)
    if wanted := TOOL.findall(said)[:MOST_CALLS]:
        return _calling(wanted, tools, words)
    earlier = sum(not isinstance(message, SystemMessage) for message in messages[: max(at, 0)])
    return Reply(_echo(SLOW.sub("", said), earlier, words), seconds=seconds)


def _echo(said: str, earlier: int, words: dict[str, str]) -> str:
    count = words["none" if not earlier else "one" if earlier == 1 else "many"].format(count=earlier)
    return "\n\n".join((words["who"], words["echo"].format(said=_clipped(said.strip())), count))


def _results(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    """What the tools called for the person's last message have answered, if an answer came last."""
    if not messages or not isinstance(messages[-1], ToolMessage):
        return []
    since = itertools.takewhile(lambda message: not isinstance(message, HumanMessage), reversed(messages))
    return [message for message in since if isinstance(message, ToolMessage)][::-1]


def _names_of_calls(messages: Sequence[BaseMessage]) -> dict[str, str]:
    calls = (call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls)
    return {call["id"] or "": call["name"] for call in calls}


def _came_back(result: ToolMessage, names: dict[str, str], words: dict[str, str]) -> str:
    name = result.name or names.get(result.tool_call_id, "")
    return words["back"].format(name=name, result=_clipped(result.text))


def _calling(wanted: Sequence[tuple[str, str]], tools: Sequence[str], words: dict[str, str]) -> Reply:
    calls: list[ToolCall] = []
    for name, text in wanted:
        arguments = _arguments(text)
        if name not in tools:
            key = "unknown" if tools else "no_tools"
            return Reply(words[key].format(name=_clipped(name), tools=", ".join(sorted(tools))))
        if arguments is None:
            return Reply(words["arguments"].format(name=name))
        calls.append(ToolCall(name=name, args=arguments, id=f"demo-{uuid4()}", type="tool_call"))
    return Reply("", tuple(calls))


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _clipped(text: str) -> str:
    return text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "…"


def words_of(text: str) -> list[str]:
    """The text in words (characters where there are no spaces), in at most `MOST_CHUNKS` pieces."""
    words = WORD.findall(text)
    step = -(-len(words) // MOST_CHUNKS) or 1
    return ["".join(words[n : n + step]) for n in range(0, len(words), step)]


class DemoModel(BaseChatModel):
    """No AI: says what it is, echoes, and obeys `/tool name {…}` and `/slow seconds text`.

    `pause` is the time between two words where `/slow` does not say otherwise.
    """

    pause: float = 0.005

    @property
    def _llm_type(self) -> str:
        return "tertulia-demo"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        reply = reply_to(messages, _names(kwargs))
        message = AIMessage(
            reply.text,
            tool_calls=list(reply.calls),
            usage_metadata=_usage(messages, reply.text),
            response_metadata={"finish_reason": "STOP", "model_name": "demo"},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        reply = reply_to(messages, _names(kwargs))
        words = words_of(reply.text)
        pause = reply.seconds / len(words) if reply.seconds and words else self.pause
        for word in words:
            await asyncio.sleep(pause)
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        yield ChatGenerationChunk(message=_last(reply, _usage(messages, reply.text)))


def _last(reply: Reply, usage: UsageMetadata) -> AIMessageChunk:
    """The chunk that ends an answer, with its tool calls."""
    calls = [
        tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"], ensure_ascii=False), id=call["id"], index=n
        )
        for n, call in enumerate(reply.calls)
    ]
    return AIMessageChunk(
        content="",
        tool_call_chunks=calls,
        usage_metadata=usage,
        response_metadata={"finish_reason": "STOP", "model_name": "demo"},
    )


def _names(options: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in options.get("tools") or ()]


def _usage(messages: Sequence[BaseMessage], text: str) -> UsageMetadata:
    """Words are counted where a real model counts tokens."""
    shown = sum(len(WORD.findall(message.text)) for message in messages)
    said = len(WORD.findall(text))
    return UsageMetadata(input_tokens=shown, output_tokens=said, total_tokens=shown + said)
