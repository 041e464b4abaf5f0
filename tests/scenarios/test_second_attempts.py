"""A turn whose worker died is shown on its next attempt what it was shown on its first, whatever was said meanwhile."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tertulia.embedded import Services
from tests.faults.world import running
from tests.scenarios.conftest import Someone, word
from tests.support.backends import fresh_database
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import failure, hang, text
from tests.support.instance import Instance
from tests.support.observe import asked, eventually
from tests.support.valkey import running_valkey


@pytest.fixture(scope="module")
async def own(backends: Services, settings: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    """The settings of servers that nobody else shares, and of which a dead one is soon noticed."""
    with running_valkey() as valkey:
        url = await fresh_database(backends, "tertulia_second_attempts")
        yield settings | {"database_url": url, "redis_url": valkey, "lease_seconds": 1, "sweep_seconds": 0.2}


async def retried(user: User, sent: dict[str, Any]) -> None:
    assert (await user.http.post(f"/api/turns/{sent['turn_id']}/retry")).status_code == 202


async def test_an_earlier_question_that_is_answered_between_two_attempts_changes_nothing_in_the_second(
    own: dict[str, Any], someone: Someone, gemini: ScriptedGemini, folder: Path
) -> None:
    session, first, second = word("s"), f"{word()} One?", f"{word()} Two?"
    gemini.script(failure(403), hang(), text("One."), text("Two."))

    async def reached() -> bool:
        return any(request.said[-1] == ("user", second) for request in list(gemini.requests))

    async with running(Instance("serve", folder, "--port", "0", **own)) as doomed:
        ann = await someone("ann", at=doomed)
        failed = await ann.send(first, session)
        assert (await ann.answered(failed))["status"] == "failed"
        hanging = await ann.send(second, session)
        await eventually(reached)
        before = asked(gemini, second).said
        await retried(ann, failed)
        doomed.kill()
    heir = Instance("serve", folder, "--port", "0", **own)
    async with running(heir), User(heir.url, ann.name) as ann:
        assert (await ann.answered(failed))["reply"]["content"] == "One."
        state = await ann.answered(hanging)
        await ann.ask(last := f"{word()} And now?", session)
    assert (state["reply"]["content"], state["turns"][0]["attempt"]) == ("Two.", 2)
    assert asked(gemini, second).said == before == [("user", first), ("user", second)]
    assert asked(gemini, last).said == [
        *(("user", first), ("model", "One."), ("user", second), ("model", "Two."), ("user", last))
    ]
