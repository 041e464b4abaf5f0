"""Searching takes little time whatever was said and is looked for; addresses, paths and numbers are words too."""

import time
from collections.abc import AsyncGenerator

import asyncpg
import pytest

from tests.scenarios.conftest import Someone, word
from tests.scenarios.test_search import indexed, search
from tests.support.client import User
from tests.support.instance import Instance

ADDRESSES = "'hello ' || repeat('a1@', 3330)"
RUN = "".join(chr(0x4E00 + 31 * n) for n in range(200))
SAID = [
    "We compared gpt-4.1 with the others",
    "Write to a@b.com today",
    "It lies in C:/tmp under its name",
    "See https://example.org/a/b?c=d for more",
    "It costs +12.50, or -3",
    "snake_case and ~tilde~ and 10:30",
]


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT api.terms({ADDRESSES}) @@ 'hello'",
        f"SELECT api.marked({ADDRESSES}, api.words_query('hello')) LIKE E'\\u0002hello\\u0003 a1%'",
        f"SELECT api.search_query({ADDRESSES}) IS NOT NULL",
    ],
    ids=["terms", "marked", "search_query"],
)
async def test_what_looks_like_endless_addresses_is_read_in_a_moment(
    statement: str, database: asyncpg.Connection
) -> None:
    began = time.monotonic()
    assert await database.fetchval(statement) is True
    assert time.monotonic() - began < 0.3


async def test_a_long_run_that_is_said_over_and_over_is_found_in_time(
    someone: Someone, database: asyncpg.Connection
) -> None:
    user = await someone("ann")
    states = [await user.ask(RUN * 50, session) for session in [word("s")] * 20]
    await indexed(database, user)
    began = time.monotonic()
    page = await search(user, RUN)
    assert time.monotonic() - began < 2
    assert {hit["message_id"] for hit in page["results"]} == {state["message_id"] for state in states}
    assert page["results"][0]["highlights"][0][0] == 0


@pytest.fixture(scope="module")
async def reader(server: Instance) -> AsyncGenerator[User]:
    """Somebody who has said all of `SAID`."""
    async with User(server.url, word("reader")) as user:
        for content in SAID:
            assert (await user.ask(content))["status"] == "done"
        yield user


@pytest.mark.parametrize(
    ("q", "number", "shown"),
    [
        ("gpt-4.1", 0, ["gpt", "4", "1"]),
        ("GPT", 0, ["gpt"]),
        ("a@b.com", 1, ["b", "com"]),
        ("b.com", 1, ["b", "com"]),
        ("C:/tmp", 2, ["C", "tmp"]),
        ("tmp", 2, ["tmp"]),
        ("https://example.org/a/b?c=d", 3, ["https", "example", "org", "b", "c", "d"]),
        ("example", 3, ["example"]),
        ("12.50", 4, ["12", "50"]),
        ("snake_case", 5, ["snake", "case"]),
        ("10:30", 5, ["10", "30"]),
    ],
)
async def test_what_is_written_with_signs_in_it_is_found_by_the_same_words(
    q: str, number: int, shown: list[str], reader: User, database: asyncpg.Connection
) -> None:
    await indexed(database, reader)
    [hit] = (await search(reader, q))["results"]
    assert hit["excerpt"] == SAID[number]
    assert [hit["excerpt"][first:last] for first, last in hit["highlights"]] == shown
