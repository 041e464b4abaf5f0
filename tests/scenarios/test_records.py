"""Why this answer: what is written down of every turn, and said in the log."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.scenarios.conftest import Alone, Someone
from tests.support.backends import of_superuser
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.instance import Instance
from tests.support.observe import asked, logged

MODEL = "google_genai:gemini-2.5-flash"


async def record(database: asyncpg.Connection, sent: dict[str, Any]) -> dict[str, Any]:
    row = await database.fetchrow("SELECT trace, usage, model FROM turns WHERE id = $1", sent["turn_id"])
    assert row is not None
    trace = json.loads(row["trace"])
    assert row["model"] == trace["model"]
    assert json.loads(row["usage"] or "null") == (trace.get("usage") or None)
    return trace


async def test_a_turn_keeps_its_model_its_usage_its_times_and_what_the_model_was_shown(
    someone: Someone, server: Instance, database: asyncpg.Connection
) -> None:
    user = await someone()
    first = await user.send("One", "s")
    await user.answered(first)
    second = await user.send("Two", "s")
    await user.answered(second)
    kept = await record(database, second)
    assert kept["model"] == MODEL
    assert kept["shown"] == [1, 2, 3]
    assert kept["usage"].keys() == {"input_tokens", "output_tokens", "total_tokens"}
    assert kept["usage"]["total_tokens"] > 0
    assert 0 < kept["firstWord"] <= kept["seconds"] < 20
    line = await logged(server, "turn ended", turn=second["turn_id"])
    assert {name: line[name] for name in ("model", "usage", "status", "attempt", "user", "tenant")} == {
        "model": MODEL, "usage": kept["usage"], "status": "done", "attempt": 1, "user": user.name, "tenant": "acme",
    }  # fmt: skip


async def test_a_turn_that_failed_keeps_them_too(
    someone: Someone, server: Instance, database: asyncpg.Connection
) -> None:
    user = await someone()
    sent = await user.send('[[failure {"status": 403}]]', "s")
    assert (await user.answered(sent))["status"] == "failed"
    kept = await record(database, sent)
    assert (kept["model"], kept["shown"]) == (MODEL, [1])
    assert "firstWord" not in kept
    assert (await logged(server, "turn failed", turn=sent["turn_id"]))["model"] == MODEL


@pytest.fixture
async def frugal(alone: Alone, folder: Path) -> AsyncGenerator[tuple[User, asyncpg.Connection]]:
    """A user of a server with room for few words, and its database."""
    settings = await alone(context_tokens=250)
    with Instance("serve", folder, "--port", "0", **settings) as running:
        connection = await asyncpg.connect(of_superuser(settings["database_url"]))
        async with User(running.url, "fred") as user:
            yield user, connection
        await connection.close()


async def test_what_the_budget_left_out_is_not_among_what_was_shown(
    frugal: tuple[User, asyncpg.Connection], gemini: ScriptedGemini
) -> None:
    user, database = frugal
    for number in range(4):
        await user.answered(await user.send(f"{number}: " + "many words " * 25, "s"))
    last = await user.send("And now?", "s")
    await user.answered(last)
    shown = (await record(database, last))["shown"]
    assert shown[-1] == 9
    assert 1 < len(shown) < 9
    assert shown == list(range(10 - len(shown), 10))
    assert len(asked(gemini, "And now?").said) == len(shown)
