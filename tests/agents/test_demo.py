import asyncio
import time
from collections.abc import Sequence

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool

from tertulia.agents.demo import DemoModel, words_of
from tertulia.agents.models import ModelStream


@tool
def notify_user(user_id: str, message: str) -> str:
    """Tell a user something."""
    return f"told {user_id}: {message}"


async def heard(*messages: BaseMessage, tools: Sequence[object] = ()) -> list[AIMessageChunk]:
    model = DemoModel(pause=0)
    answering = model.bind_tools(list(tools)) if tools else model
    async with ModelStream(answering.astream(list(messages)), timeout=5) as chunks:
        return [chunk async for chunk in chunks]


async def answer(*messages: BaseMessage, tools: Sequence[object] = ()) -> AIMessageChunk:
    message, *rest = await heard(*messages, tools=tools)
    for chunk in rest:
        message += chunk
    return message


async def test_it_says_plainly_what_it_is_and_what_to_set():
    said = (await answer(HumanMessage("Hello"))).text
    assert "demo model, no AI" in said
    assert "GOOGLE_API_KEY" in said
    assert "TERTULIA_MODEL" in said


async def test_it_echoes_what_was_said():
    assert "You said: “Hello there”" in (await answer(HumanMessage("Hello there"))).text


async def test_it_answers_chinese_in_chinese():
    said = (await answer(HumanMessage("你好"))).text
    assert "演示模型" in said
    assert "你说的是：“你好”" in said


@pytest.mark.parametrize(
    ("earlier", "told"),
    [
        ([], "no earlier messages"),
        ([SystemMessage("Be kind.")], "no earlier messages"),
        ([HumanMessage("a")], "1 earlier message."),
        ([HumanMessage("a"), AIMessage("b")], "2 earlier messages"),
    ],
)
async def test_it_tells_how_many_earlier_messages_it_was_shown(earlier: list[BaseMessage], told: str):
    assert told in (await answer(*earlier, HumanMessage("c"))).text


async def test_it_streams_word_by_word():
    pieces = [chunk.text for chunk in await heard(HumanMessage("Hello")) if chunk.text]
    assert pieces[:4] == ["I", " am", " Tertulia's", " built-in"]


async def test_chinese_streams_character_by_character():
    assert words_of("你好 world") == ["你", "好", " world"]


@pytest.mark.parametrize("said", ["a b  c\n\nd ", "", "  ", "你好，世界。ok"])
def test_words_are_the_whole_text(said: str):
    assert "".join(words_of(said)) == said


async def test_it_tells_finish_and_usage():
    message = await answer(HumanMessage("one two"))
    assert message.response_metadata["finish_reason"] == "STOP"
    assert message.usage_metadata
    assert message.usage_metadata["input_tokens"] == 2


async def test_a_long_message_is_quoted_in_part_and_in_few_chunks():
    chunks = await heard(HumanMessage("word " * 10_000))
    assert len(chunks) < 410
    assert sum(len(chunk.text) for chunk in chunks) < 2300


async def test_it_calls_the_tool_it_is_told_to_call():
    message = await answer(
        HumanMessage('Please\n/tool notify_user {"user_id": "bob", "message": "hi"}'), tools=[notify_user]
    )
    [made] = message.tool_calls
    assert (made["name"], made["args"]) == ("notify_user", {"user_id": "bob", "message": "hi"})


async def test_two_lines_are_two_calls_with_ids_of_their_own():
    said = HumanMessage("/tool notify_user {}\n/tool notify_user {}")
    ids = {made["id"] for _ in range(2) for made in (await answer(said, tools=[notify_user])).tool_calls}
    assert len(ids) == 4


async def test_it_says_what_the_tool_answered():
    asked = HumanMessage("/tool notify_user {}")
    called = await answer(asked, tools=[notify_user])
    result = ToolMessage("told bob", tool_call_id=called.tool_calls[0]["id"] or "", name="notify_user")
    message = await answer(asked, AIMessage("", tool_calls=called.tool_calls), result, tools=[notify_user])
    assert message.text == "The tool notify_user answered: told bob"
    assert message.tool_calls == []


async def test_it_says_what_each_of_several_tools_answered():
    shown: list[BaseMessage] = [HumanMessage("/tool notify_user {}\n/tool notify_user {}")]
    for name in ("bob", "eve"):
        shown.append(AIMessage("", tool_calls=[{"name": "notify_user", "args": {}, "id": name}]))
        shown.append(ToolMessage(f"told {name}", tool_call_id=name))
    assert (await answer(*shown, tools=[notify_user])).text == (
        "The tool notify_user answered: told bob\nThe tool notify_user answered: told eve"
    )


async def test_a_tool_may_be_bound_by_its_declaration_alone():
    declared = {"name": "fly", "description": "Fly.", "parameters": {"type": "object", "properties": {}}}
    assert (await answer(HumanMessage("/tool fly"), tools=[declared])).tool_calls[0]["name"] == "fly"


async def test_an_old_tool_line_is_not_obeyed_again():
    message = await answer(
        HumanMessage("/tool notify_user {}"), AIMessage("Done."), HumanMessage("Thanks"), tools=[notify_user]
    )
    assert message.tool_calls == []


async def test_a_tool_it_does_not_have_is_named_with_those_it_has():
    assert (await answer(HumanMessage("/tool fly {}"), tools=[notify_user])).text == (
        "I have no tool fly. I can call: notify_user."
    )


async def test_without_tools_it_says_so():
    assert (await answer(HumanMessage("/tool fly {}"))).text == "I have no tool fly, and no others either."


async def test_arguments_that_are_no_object_are_explained():
    assert "no JSON object" in (await answer(HumanMessage("/tool notify_user [1"), tools=[notify_user])).text


async def test_slow_spreads_the_answer_over_the_seconds_asked_for():
    began = time.monotonic()
    message = await answer(HumanMessage("/slow 0.5 Hello"))
    assert 0.45 < time.monotonic() - began < 1.5
    assert "You said: “Hello”" in message.text


async def test_slow_can_be_cancelled_at_once():
    reading = asyncio.create_task(answer(HumanMessage("/slow 60 Hello")))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert time.monotonic() - began < 0.5


def test_it_can_answer_without_a_stream():
    assert "You said: “Hello”" in DemoModel().invoke([HumanMessage("Hello")]).text
