"""Our shorter way to Gemini and LangChain's own send the same and hear the same, whatever is said."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_google_genai import ChatGoogleGenerativeAI
from pydantic import SecretStr

from tertulia.agents.gemini import Gemini
from tertulia.agents.loop import declaration
from tertulia.agents.models import as_turn_error
from tertulia.tools.present import Present
from tests.support import gemini_answers as answers
from tests.support.gemini import ScriptedGemini

TOOLS = [declaration(Present())]
SYSTEM = SystemMessage("Be kind. 请用中文回答。")
CALLED = AIMessage(
    "", tool_calls=[{"name": "present", "args": {"type": "x", "data": {}}, "id": "c1", "type": "tool_call"}]
)
TALKS: dict[str, list[BaseMessage]] = {
    "a question": [SYSTEM, HumanMessage("为什么会这样？")],
    "a conversation": [SYSTEM, HumanMessage("a"), AIMessage('b\n"c"\u2028'), HumanMessage("🚀 d")],
    "two in a row": [SYSTEM, HumanMessage("card one"), HumanMessage("card two"), HumanMessage("both?")],
    "after a tool": [SYSTEM, HumanMessage("a"), CALLED, ToolMessage("Presented.", tool_call_id="c1")],
    "no system message": [HumanMessage("a")],
    "an empty answer in it": [SYSTEM, HumanMessage("a"), AIMessage(""), HumanMessage("b")],
}
ANSWERS = {
    "text": answers.text("Hello, world! 你好。", chunks=5),
    "one piece": answers.text("Hi", chunks=1),
    "another model": answers.text("Hi there", chunks=2, version="gemini-3-pro-preview"),
    "too long": answers.text("Hi there", chunks=2, finish="MAX_TOKENS"),
    "unsafe": answers.text("Hi there", chunks=2, finish="SAFETY"),
    "unfinished": answers.unfinished(),
    "a call": answers.call("present", {"type": "x", "data": {"items": [1]}}, said="Let me see."),
    "two calls": answers.calls(
        {"name": "present", "args": {"type": "x"}, "id": "1"}, {"name": "present", "args": {}, "id": "2"}
    ),
    "blocked": answers.blocked(),
    "empty": answers.empty(),
}
FAILURES = {
    "refused": answers.failure(400),
    "unknown model": answers.failure(404),
    "limited": answers.limited(retry_after=7),
    "unavailable": answers.failure(503),
    "failing late": answers.failing_late(),
    "cut": answers.cut(),
    "malformed": answers.malformed(),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedGemini]:
    with ScriptedGemini() as running:
        yield running


@pytest.fixture(scope="module")
def models(server: ScriptedGemini) -> tuple[BaseChatModel, BaseChatModel]:
    options: dict[str, Any] = {
        "model": "gemini-2.5-flash",
        "api_key": SecretStr("k" * 39),
        "base_url": server.url,
        "timeout": 5,
        "max_retries": 1,
        "additional_headers": {"X-Server-Timeout": "600"},
        "client_args": {"limits": httpx.Limits(max_connections=10)},
    }
    return ChatGoogleGenerativeAI(**options), Gemini(**options)


async def told(model: BaseChatModel, messages: list[BaseMessage]) -> list[dict[str, Any]]:
    """The chunks, without what is random in them."""
    chunks: list[AIMessageChunk] = [chunk async for chunk in model.bind_tools(TOOLS).astream(messages)]
    plain = [chunk.model_dump(exclude={"id"}) for chunk in chunks]
    for chunk in plain:
        for name in ("tool_calls", "tool_call_chunks", "invalid_tool_calls"):
            for call in chunk[name]:
                call["id"] = call["id"] and len(call["id"])
    return plain


@pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS.keys())
async def test_the_same_request_is_sent(
    talk: list[BaseMessage], server: ScriptedGemini, models: tuple[BaseChatModel, BaseChatModel]
) -> None:
    server.reset()
    for model in models:
        await told(model, talk)
    first, second = server.requests
    assert first.body == second.body
    for name in ("x-goog-api-key", "content-type", "x-server-timeout"):
        assert first.headers[name] == second.headers[name], name


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
async def test_the_same_answer_is_heard(
    answer: answers.Answer, server: ScriptedGemini, models: tuple[BaseChatModel, BaseChatModel]
) -> None:
    server.reset()
    server.script(answer, answer)
    first, second = [await told(model, TALKS["a question"]) for model in models]
    assert first == second
    assert first


@pytest.mark.parametrize("answer", FAILURES.values(), ids=FAILURES.keys())
async def test_the_same_failure_is_raised(
    answer: answers.Answer, server: ScriptedGemini, models: tuple[BaseChatModel, BaseChatModel]
) -> None:
    server.reset()
    server.script(answer, answer)
    found = []
    for model in models:
        with pytest.raises(Exception) as raised:
            await told(model, TALKS["a question"])
        error = as_turn_error(raised.value)
        found.append((type(error), str(error), error.retry_after))
    assert found[0] == found[1]


async def test_plain_talk_takes_the_short_way_and_tools_langchains(
    server: ScriptedGemini, models: tuple[BaseChatModel, BaseChatModel]
) -> None:
    """Else this file would compare LangChain with itself."""
    server.reset()
    _, ours = models
    for talk in ("a conversation", "after a tool"):
        await told(ours, TALKS[talk])
    plain, after_tool = server.requests
    assert "accept-encoding" in plain.headers
    assert b'"contents":[{"parts"' in plain.raw
    assert b'"contents": [' in after_tool.raw
