"""When the model fails after its agent has used a tool: as long as nothing was said, nobody notices."""

from tests.scenarios.conftest import word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import call, failure, text

NOTE = {"type": "note", "data": {"x": 1}}


def times_asked(gemini: ScriptedGemini, question: str) -> int:
    """How many calls of the model were for this question."""
    return sum(("user", question) in request.said for request in list(gemini.requests))


async def test_a_failure_after_a_call_and_before_any_word_is_tried_again_without_anybody_noticing(
    ann: User, gemini: ScriptedGemini
) -> None:
    gemini.script(call("present", NOTE), failure(503), text("Here it is."))
    state = await ann.ask(question := f"{word()} Show me")
    assert (state["status"], state["reply"]["content"]) == ("done", "Here it is.")
    assert state["reply"]["structured_data"] == {"type": "note", "x": 1}
    assert (state["turns"][0]["attempt"], times_asked(gemini, question)) == (1, 3)


async def test_a_failure_after_a_call_and_after_words_is_not_tried_again(
    ann: User, gemini: ScriptedGemini
) -> None:
    gemini.script(call("present", NOTE, said="Let me see. "), failure(503))
    state = await ann.ask(question := f"{word()} Show me")
    assert (state["status"], state["turns"][0]["code"]) == ("failed", "MODEL_UNAVAILABLE")
    assert state["turns"][0]["partial"] == "Let me see. "
    assert times_asked(gemini, question) == 2
