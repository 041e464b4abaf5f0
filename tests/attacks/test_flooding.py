"""Many tenants at once: one that floods is told to wait, and none sees what another's request left behind."""

import asyncio
import random
from collections import Counter

import asyncpg

from tertulia.core.model import Owner
from tertulia.embedded import Services
from tertulia.store.database import Database
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


async def test_a_connection_goes_back_to_the_pool_without_tenant_or_user(backends: Services) -> None:
    database = await Database.open(backends.database_url, 2)
    pool: asyncpg.Pool = database._pool  # pyright: ignore[reportPrivateUsage]

    async def settings() -> set[tuple[str | None, str | None, int]]:
        async with pool.acquire() as one, pool.acquire() as two:
            asked = (
                "SELECT nullif(current_setting('tertulia.tenant', true), ''),"
                " nullif(current_setting('tertulia.user', true), ''), (SELECT count(*)::int FROM conversations)"
            )
            return {tuple(await each.fetchrow(asked)) for each in (one, two)}

    async def work(n: int) -> None:
        owner = Owner(f"tenant-{n % 5}", f"user-{n % 3}")
        async with database.transaction(owner) as session:
            row = await session.one("known_user", user="nobody")
            assert row is not None
            if n % 4 == 0:
                raise RuntimeError("broken off in the middle")

    outcomes = await asyncio.gather(*[work(n) for n in range(200)], return_exceptions=True)
    assert sum(isinstance(outcome, RuntimeError) for outcome in outcomes) == 50
    assert await settings() == {(None, None, 0)}
    cut_short = [asyncio.ensure_future(work(1)) for _ in range(50)]
    await asyncio.sleep(0.005)
    for task in cut_short:
        task.cancel()
    await asyncio.gather(*cut_short, return_exceptions=True)
    assert await settings() == {(None, None, 0)}
    await database.close()
