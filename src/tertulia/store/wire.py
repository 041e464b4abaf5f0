"""The names of asyncpg's types, in one place because its generic ones need arguments only for the type checker."""

from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[Any]
    Pool: TypeAlias = asyncpg.Pool[Any]
else:
    Connection = asyncpg.Connection
    Pool = asyncpg.Pool

Row: TypeAlias = asyncpg.Record
