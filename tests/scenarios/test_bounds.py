"""Answers that would never end: time, length and steps bound them. They fail for all to see, and the next one comes."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tertulia.embedded import Services
from tests.scenarios.conftest import Someone, word
from tests.support.backends import fresh_database
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import Answer, call, text
from tests.support.instance import Instance
from tests.support.observe import asked, eventually, logged
from tests.support.valkey import running_valkey

TIMEOUT = "The model took too long to answer. Please try again."
TOO_LONG = "The answer grew longer than this server allows."
TOO_MANY = "The agent reached its limit of steps or length before it was done."
NOTE = {"type": "note", "data": {"x": 1}}


@pytest.fixture(scope="module")
async def bounded(backends: Services, settings: dict[str, Any], folder: Path) -> AsyncGenerator[Instance]:
    """A server whose answers take three seconds, a thousand characters and three calls of the model at most."""
    with running_valkey() as valkey:
        url = await fresh_database(backends, "tertulia_bounded")
        own = {
            "database_url": url,
            "redis_url": valkey,
            "turn_timeout": 3,
            "answer_chars": 1000,
            "agent_steps": 3,
        }
        with Instance("serve", folder, "--port", "0", **settings | own) as running:
            yield running


@pytest.fixture
async def ann(bounded: Instance, someone: Someone) -> User:
    return await someone("ann", at=bounded)


async def fails(user: User, question: str, code: str, sentence: str) -> dict[str, Any]:
    """Ask; the turn fails for this reason, and the next message of the conversation is answered. Yields the turn."""
    sent = await user.send(question, session := word("s"))
    state = await user.answered(sent)
    (turn,) = state["turns"]
    assert (state["status"], state["reply"]) == ("failed", None)
    assert (turn["status"], turn["code"], turn["error"], turn["attempt"]) == ("failed", code, sentence, 1)
    after = await user.ask("And now?", session)
    assert (after["status"], after["reply"]["content"]) == ("done", "Hello from the scripted model.")
    return turn


async def hung_up(gemini: ScriptedGemini, question: str) -> None:
    """Wait until the model has been left alone with its answer."""

    async def gone() -> bool:
        return asked(gemini, question).disconnected_at is not None

    await eventually(gone)


async def test_an_answer_may_take_only_so_long_though_the_model_never_falls_silent(
    bounded: Instance, ann: User, gemini: ScriptedGemini
) -> None:
    await ann.ask("Hello")  # so that the model is loaded
    question = f'{word()} [[endless {{"delay": 0.05}}]]'
    turn = await fails(ann, question, "GENERATION_TIMEOUT", TIMEOUT)
    line = await logged(bounded, "turn failed", turn=turn["turn_id"])
    assert 3 <= line["seconds"] < 6
    assert turn["partial"].startswith("and and and ")
    await hung_up(gemini, question)


async def test_an_answer_that_never_ends_is_stopped_as_soon_as_it_is_too_long(
    ann: User, gemini: ScriptedGemini
) -> None:
    question = f'{word()} [[endless {{"said": "{"x" * 100}"}}]]'
    turn = await fails(ann, question, "AGENT_LIMIT_REACHED", TOO_LONG)
    assert turn["partial"] == "x" * 1000
    await hung_up(gemini, question)


def around_a_call(before: int, after: int) -> tuple[Answer, Answer]:
    """So many characters, a call, and so many more."""
    return call("present", NOTE, said="x" * before), text("y" * after)


async def test_an_answer_may_have_a_thousand_characters_before_and_after_its_calls_and_not_one_more(
    ann: User, gemini: ScriptedGemini
) -> None:
    gemini.script(*around_a_call(600, 400))
    state = await ann.ask("Tell me much")
    assert (state["status"], state["reply"]["content"]) == ("done", "x" * 600 + "y" * 400)
    gemini.script(*around_a_call(600, 401))
    await fails(ann, "Tell me more", "AGENT_LIMIT_REACHED", TOO_LONG)


async def test_a_model_that_calls_tools_for_ever_is_asked_only_so_often(
    ann: User, gemini: ScriptedGemini
) -> None:
    gemini.script(call("present", NOTE), call("present", NOTE), text("At last"))
    state = await ann.ask("Show me twice")
    assert (state["status"], state["reply"]["content"]) == ("done", "At last")
    gemini.script(*[call("present", NOTE)] * 3)
    await fails(ann, question := f"{word()} Show me for ever", "AGENT_LIMIT_REACHED", TOO_MANY)
    assert len([1 for request in list(gemini.requests) if request.said[-1] == ("user", question)]) == 3
