"""The named queries of `sql/*.sql`, with parameters by name."""

from importlib.resources import files
from typing import Any, NamedTuple, cast

import aiosql
from aiosql.adapters.asyncpg import AsyncPGAdapter


class Query(NamedTuple):
    """One statement and the order in which it takes its parameters."""

    sql: str
    parameters: tuple[str, ...]

    def arguments(self, given: dict[str, object]) -> list[object]:
        return [given[name] for name in self.parameters]


def load() -> dict[str, Query]:
    """All queries by name. (aiosql reads them; its own calls inspect the connection each time, which is slow.)"""
    adapter = AsyncPGAdapter()
    reader: Any = aiosql
    loaded = reader.from_path(
        str(files("tertulia.store") / "sql"), lambda: adapter, mandatory_parameters=False
    )
    order: dict[str, list[str]] = cast(Any, adapter).var_sorted
    names: list[str] = [name for name in loaded.available_queries if not name.endswith("_cursor")]
    return {name: Query(getattr(loaded, name).sql, tuple(order[name])) for name in names}
