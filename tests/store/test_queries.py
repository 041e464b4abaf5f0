"""The named queries and the schema agree: each can be prepared and planned by the server's role."""

import re
from importlib.resources import files
from typing import Any

import asyncpg
import pytest

from tertulia.store import queries

KNOWN = queries.load()


def test_every_name_in_the_files_is_a_query_that_can_be_called() -> None:
    texts = [file.read_text("utf-8") for file in files("tertulia.store").joinpath("sql").iterdir()]
    names = [name for text in texts for name in re.findall(r"^-- name: (\w+)", text, re.MULTILINE)]
    assert len(names) == len(set(names)), "a name is used twice"
    assert set(names) == set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
async def test_a_query_is_prepared_with_as_many_parameters_as_it_names(
    name: str, server_role: "asyncpg.Connection[Any]"
) -> None:
    prepared = await server_role.prepare(KNOWN[name].sql)
    assert len(prepared.get_parameters()) == len(KNOWN[name].parameters) == len(set(KNOWN[name].parameters))


@pytest.mark.parametrize("name", [name for name in KNOWN if "api." not in KNOWN[name].sql])
async def test_a_query_can_be_planned_for_any_parameters(
    name: str, superuser: "asyncpg.Connection[Any]"
) -> None:
    await superuser.execute("SET ROLE tertulia_server")
    assert await superuser.execute("EXPLAIN (GENERIC_PLAN) " + KNOWN[name].sql) == "EXPLAIN"


async def test_every_function_of_ours_is_used_by_a_query_or_another_function(
    superuser: "asyncpg.Connection[Any]",
) -> None:
    functions = await superuser.fetch(
        "SELECT proname AS name, prosrc AS body FROM pg_proc WHERE pronamespace = 'api'::regnamespace"
    )
    used = " ".join([query.sql for query in KNOWN.values()] + [row["body"] for row in functions])
    assert [row["name"] for row in functions if f"api.{row['name']}(" not in used] == []
