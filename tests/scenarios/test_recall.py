"""What the model is shown after the hot context has lost, missed or never had a part of the conversation."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest

from tests.faults.proxy import Proxy
from tests.faults.world import running
from tests.scenarios.conftest import Alone, Someone, word
from tests.support.backends import of_superuser
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.instance import Instance
from tests.support.observe import asked, eventually

Said = list[tuple[str, str]]
Busy = Callable[[], AbstractAsyncContextManager[None]]


class Place(NamedTuple):
    """A server that holds one conversation in its context and answers one at a time for each tenant."""

    server: Instance
    database: "asyncpg.Connection[Any]"


@pytest.fixture(scope="module", params=["memory", "redis"])
async def place(request: pytest.FixtureRequest, alone: Alone, folder: Path) -> AsyncGenerator[Place]:
    settings = await alone(context_store=request.param, context_conversations=1, worker_slots=2)
    database = await asyncpg.connect(of_superuser(settings["database_url"]))
    with Instance("serve", folder, "--port", "0", **settings) as server:
        yield Place(server, database)
    await database.close()


@pytest.fixture
async def ann(place: Place, someone: Someone) -> User:
    return await someone("ann", at=place.server)


@pytest.fixture
async def zoe(place: Place, someone: Someone) -> User:
    """Of another tenant, so that she is answered while a turn of Ann's runs."""
    return await someone("zoe", "globex", at=place.server)


@pytest.fixture
def busy(ann: User, gemini: ScriptedGemini) -> Busy:
    """`async with busy():` the only slot of Ann's tenant is taken, by a conversation that is now the one held."""

    @asynccontextmanager
    async def occupy() -> AsyncGenerator[None]:
        sent = await ann.send(question := f"{word()} [[hang]]")
        await reached(gemini, question)
        yield
        await abort(ann, sent)

    return occupy


def saying(answer: str) -> str:
    return f'{word()} [[text {{"said": "{answer}"}}]]'


async def reached(gemini: ScriptedGemini, question: str) -> None:
    """Wait until the model has been asked this, so that what it is shown has been read."""

    async def look() -> bool:
        return any(request.said[-1] == ("user", question) for request in list(gemini.requests))

    await eventually(look)


async def abort(user: User, sent: dict[str, Any]) -> None:
    response = await user.http.post(f"/api/conversations/{sent['conversation_id']}/abort")
    assert [(turn["id"], turn["status"]) for turn in response.json()["turns"]] == [
        (sent["turn_id"], "aborted")
    ]


async def talked(user: User, session: str) -> Said:
    """Four messages and their answers."""
    said: Said = []
    for number in range(4):
        state = await user.ask(question := saying(f"a{number}"), session)
        assert state["status"] == "done"
        said += [("user", question), ("model", f"a{number}")]
    return said


async def shown(user: User, gemini: ScriptedGemini, session: str) -> Said:
    """What the model sees before one more message."""
    state = await user.ask(question := f"{word()} And now?", session)
    assert state["status"] == "done"
    seen = asked(gemini, question).said
    assert seen[-1] == ("user", question)
    return seen[:-1]


async def test_a_turn_that_was_aborted_before_its_start_does_not_stand_for_the_whole_conversation(
    place: Place, ann: User, gemini: ScriptedGemini, busy: Busy
) -> None:
    said = await talked(ann, session := word("s"))
    async with busy():
        sent = await ann.send("Never mind", session)
        aborting = asyncio.create_task(abort(ann, sent))

        async def requested() -> bool:
            query = "SELECT abort_requested FROM turns WHERE id = $1"
            return await place.database.fetchval(query, UUID(sent["turn_id"]))

        await eventually(requested)
    await aborting
    assert await shown(ann, gemini, session) == [*said, ("user", "Never mind")]


async def test_a_turn_that_was_given_up_unanswered_does_not_stand_for_the_whole_conversation(
    place: Place, ann: User, gemini: ScriptedGemini, busy: Busy
) -> None:
    said = await talked(ann, session := word("s"))
    async with busy():
        sent = await ann.send("It kills workers", session)
        await place.database.execute("UPDATE turns SET tries = 3 WHERE id = $1", UUID(sent["turn_id"]))
    state = await ann.answered(sent)
    assert (state["status"], state["turns"][0]["code"]) == ("failed", "TURN_FAILED_REPEATEDLY")
    assert await shown(ann, gemini, session) == [*said, ("user", "It kills workers")]


async def test_a_conversation_deleted_and_brought_back_during_an_answer_is_remembered_whole(
    place: Place, ann: User, gemini: ScriptedGemini
) -> None:
    said = await talked(ann, session := word("s"))
    sent = await ann.send(question := f"{word()} [[hang]]", session)
    await reached(gemini, question)
    address = f"/api/conversations/{sent['conversation_id']}"
    assert (await ann.http.delete(address)).status_code == 200
    assert (await ann.http.post(f"{address}/restore")).status_code == 200
    assert (await ann.answered(sent))["status"] == "aborted"
    assert await shown(ann, gemini, session) == [*said, ("user", question)]


async def test_a_conversation_evicted_while_it_is_answered_is_remembered_whole(
    ann: User, zoe: User, gemini: ScriptedGemini
) -> None:
    said = await talked(ann, session := word("s"))
    sent = await ann.send(question := f"{word()} [[hang]]", session)
    await reached(gemini, question)
    assert (await zoe.ask("Make room"))["status"] == "done"
    await abort(ann, sent)
    assert await shown(ann, gemini, session) == [*said, ("user", question)]


async def test_of_messages_queued_at_once_and_then_answered_the_newest_exchanges_are_shown(
    ann: User, zoe: User, gemini: ScriptedGemini, busy: Busy
) -> None:
    """In the log all questions come before all answers; the model sees each answer behind its question.

    The window of twenty has room for nineteen besides the message to answer.
    """
    session = word("s")
    questions = [saying(f"a{number}") for number in range(14)]
    async with busy():
        sent = [await ann.send(question, session) for question in questions]
    for each in sent:
        assert (await ann.answered(each))["status"] == "done"
    assert (await zoe.ask("Make room"))["status"] == "done"
    pairs = [[("user", question), ("model", f"a{n}")] for n, question in enumerate(questions)]
    assert await shown(ann, gemini, session) == [part for pair in pairs for part in pair][-19:]


async def test_a_turn_whose_context_can_not_be_reached_is_shown_the_log(
    alone: Alone, folder: Path, someone: Someone, gemini: ScriptedGemini
) -> None:
    settings = await alone(context_store="redis", lease_seconds=3, turn_attempts=1)
    valkey = urlsplit(settings["redis_url"])
    async with AsyncExitStack() as stack, AsyncExitStack() as lines:
        line = await lines.enter_async_context(Proxy(Path(valkey.path)).listening())
        settings["redis_url"] = f"redis://127.0.0.1:{line.port}?{valkey.query}"
        server = await stack.enter_async_context(
            running(Instance("serve", folder, "--port", "0", **settings))
        )
        ann = await someone("ann", at=server)
        said = await talked(ann, session := word("s"))
        first = await ann.send(blocking := f"{word()} [[hang]]", session)
        await reached(gemini, blocking)
        behind = await ann.send(question := f"{word()} And now?", session)
        await lines.aclose()
        await abort(ann, first)
        state = await ann.answered(behind)
        server.kill()
    assert (state["status"], state["turns"][0]["code"], state["turns"][0]["attempt"]) == ("done", None, 1)
    assert asked(gemini, question).said == [*said, ("user", blocking), ("user", question)]
