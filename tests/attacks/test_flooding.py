"""Many tenants at once: one that floods is told to wait, and none sees what another's request left behind."""

import asyncio
import random
from collections import Counter

from tertulia.core.model import Owner
from tertulia.embedded import Services
from tertulia.store.database import Database
from tertulia.store.queries import Query
from tests.support.client import User
from tests.support.instance import Instance
from tests.support.refusals import refused

OURS = {"aud": "tertulia", "iss": "https://id.example"}


async def test_one_user_who_floods_gets_429_and_others_of_the_tenant_are_unharmed(strict: Instance) -> None:
    async with (
        User(strict.url, "flo", "flooded", **OURS) as flo,
        User(strict.url, "ann", "flooded", **OURS) as ann,
    ):
        answers = await asyncio.gather(*[flo.http.get("/api/notifications") for _ in range(60)])
        counted = Counter(answer.status_code for answer in answers)
        assert set(counted) == {200, 429}
        assert 15 <= counted[200] <= 30
        limited = next(answer for answer in answers if answer.status_code == 429)
        refused(limited, 429, "RATE_LIMITED")
        assert 1 <= int(limited.headers["retry-after"]) <= 60
        assert (await ann.http.get("/api/notifications")).status_code == 200


async def test_one_tenant_that_floods_gets_429_and_another_is_unharmed(strict: Instance) -> None:
    users = [User(strict.url, f"flo{n}", "flood", **OURS) for n in range(8)]
    answers = await asyncio.gather(
        *[user.http.get("/api/notifications") for user in users for _ in range(10)]
    )
    assert Counter(answer.status_code for answer in answers)[429] >= 40
    async with User(strict.url, "ann", "quiet", **OURS) as ann:
        assert [(await ann.http.get("/api/notifications")).status_code for _ in range(5)] == [200] * 5
    for user in users:
        await user.http.aclose()


async def test_settings_do_not_leak_between_tenants_that_share_connections(server: Instance) -> None:
    tenants = [f"mixed-{n}" for n in range(8)]
    users = [User(server.url, name, tenant) for tenant in tenants for name in ("ann", "bob")]
    sent = {user: await user.send(f"I am {user.name} of {user.tenant}", "the-same-handle") for user in users}

    async def look(user: User, other: User) -> None:
        mine = sent[user]
        page = await user.conversation(mine["conversation_id"])
        assert page["messages"][0]["content"] == f"I am {user.name} of {user.tenant}"
        assert (await user.state(mine["message_id"]))["session_id"] == "the-same-handle"
        theirs = sent[other]["conversation_id"]
        if other is not user:
            refused(await user.http.get(f"/api/conversations/{theirs}"), 404, "CONVERSATION_NOT_FOUND")
            refused(await user.http.post(f"/api/conversations/{theirs}/abort"), 404, "CONVERSATION_NOT_FOUND")

    chance = random.Random(5)  # noqa: S311
    for _ in range(6):
        await asyncio.gather(*[look(chance.choice(users), chance.choice(users)) for _ in range(60)])
    for user in users:
        await user.http.aclose()


async def test_a_connection_is_lent_again_without_the_tenant_or_user_of_before(backends: Services) -> None:
    database = await Database.open(backends.database_url, 2)
    asked = (
        "SELECT nullif(current_setting('tertulia.tenant', true), '') AS tenant,"
        " nullif(current_setting('tertulia.user', true), '') AS user, (SELECT count(*) FROM users) AS seen"
    )
    known = database._known  # pyright: ignore[reportPrivateUsage]
    known["what_is_left"] = Query(asked, ())

    async def left() -> set[tuple[object, ...]]:
        """What the next ones find who are lent these connections."""
        found = await asyncio.gather(*[database.one("what_is_left") for _ in range(10)])
        return {tuple(row) for row in found}

    async def work(n: int) -> None:
        async with database.transaction(Owner(f"tenant-{n % 5}", f"user-{n % 3}")) as session:
            row = await session.one("what_is_left")
            assert row is not None
            assert (row["tenant"], row["user"]) == (f"tenant-{n % 5}", f"user-{n % 3}")
            if n % 4 == 0:
                raise RuntimeError("broken off in the middle")

    outcomes = await asyncio.gather(*[work(n) for n in range(200)], return_exceptions=True)
    assert Counter(type(outcome) for outcome in outcomes) == {RuntimeError: 50, type(None): 150}
    assert await left() == {(None, None, 0)}
    for pause in (0.0, 0.001, 0.003, 0.006):
        cut_short = [asyncio.ensure_future(work(1)) for _ in range(50)]
        await asyncio.sleep(pause)
        for task in cut_short:
            task.cancel()
        await asyncio.gather(*cut_short, return_exceptions=True)
        assert await left() == {(None, None, 0)}
    await database.close()
