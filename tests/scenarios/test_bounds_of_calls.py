"""Calls of tools that would never end: what a model puts into them counts as its answer, and so does their number."""

import pytest

from tests.scenarios.conftest import Someone, word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import Answer, calls, text

TOO_LONG = "The answer grew longer than this server allows."
TOO_MANY = "The agent wanted to use more tools at once than this server allows."


@pytest.fixture
async def ann(someone: Someone) -> User:
    return await someone("ann")


def showing(times: int, length: int, *, together: bool = True) -> Answer:
    """So many calls with data of so many characters, in one piece or in as many."""
    made = {"name": "present", "args": {"type": "note", "data": {"text": "x" * length}}}
    return calls(*[made] * times, together=together)


async def fails(user: User, sentence: str) -> None:
    """The answer fails for its length; no tool was used, and the conversation goes on."""
    sent = await user.send("Show me", session := word("s"))
    state = await user.answered(sent)
    (turn,) = state["turns"]
    assert (state["status"], turn["code"], turn["error"]) == ("failed", "AGENT_LIMIT_REACHED", sentence)
    messages = (await user.conversation(sent["conversation_id"]))["messages"]
    assert [message["contentType"] for message in messages] == ["text"]
    assert (await user.ask("And now?", session))["status"] == "done"


@pytest.mark.parametrize("answer", [showing(1, 200_000), showing(5, 50_000, together=False)])
async def test_what_a_model_puts_into_calls_counts_as_its_answer(
    answer: Answer, ann: User, gemini: ScriptedGemini
) -> None:
    gemini.script(answer)
    await fails(ann, TOO_LONG)


async def test_as_much_as_an_answer_may_be_can_be_put_into_calls(ann: User, gemini: ScriptedGemini) -> None:
    gemini.script(showing(3, 60_000, together=False), text("There."))
    state = await ann.ask("Show me")
    assert (state["status"], state["reply"]["content"]) == ("done", "There.")


@pytest.mark.parametrize("together", [True, False])
async def test_of_32_calls_at_once_each_is_made_and_of_33_none(
    together: bool, ann: User, gemini: ScriptedGemini
) -> None:
    gemini.script(showing(32, 1, together=together), text("There."))
    state = await ann.ask("Show me")
    messages = (await ann.conversation(state["conversation_id"], limit=200))["messages"]
    assert (state["status"], state["reply"]["content"]) == ("done", "There.")
    assert len([1 for message in messages if message["contentType"] == "tool_result"]) == 32
    gemini.script(showing(33, 1, together=together))
    await fails(ann, TOO_MANY)
