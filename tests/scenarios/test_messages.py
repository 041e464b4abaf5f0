"""Sending a message and being answered, in the running server."""

import pytest

from tests.support.client import User
from tests.support.gemini import ScriptedGemini


@pytest.mark.scenario("002", "LLM generates contextual response")
async def test_a_message_is_answered_by_the_model(ann: User, gemini: ScriptedGemini) -> None:
    state = await ann.ask('[[text {"said": "Hi Ann", "chunks": 3}]]')
    assert state["status"] == "done"
    assert state["reply"]["content"] == "Hi Ann"
