"""What must be true of a database before we serve from it."""

import asyncpg

from tertulia.store.migrate import expected
from tertulia.store.wire import Connection


class UnsafeRole(Exception):
    """The server's database role could see past row level security."""


class NotMigrated(Exception):
    """The database lacks a part of the schema that this version needs."""


async def refuse_unsafe_role(connection: Connection) -> None:
    """Row level security binds neither superusers nor owners: serving as one of them would be serving without it."""
    row = await connection.fetchrow(
        """
        SELECT current_user AS name, EXISTS (
            SELECT FROM pg_roles r
             WHERE pg_has_role(current_user, r.oid, 'MEMBER')  -- itself, and all that it could become
               AND (r.rolsuper OR r.rolbypassrls OR r.rolname = 'tertulia_system'
                    OR EXISTS (SELECT FROM pg_class c WHERE c.relowner = r.oid AND c.relrowsecurity
                                  AND c.relnamespace = 'public'::regnamespace))) AS mighty
        """
    )
    if row is None or row["mighty"]:
        raise UnsafeRole(
            f"The database role {row['name'] if row else '?'!r} could see every tenant's data: it is a superuser, owns"
            " the tables, or may pass row level security. Put a plain login role into TERTULIA_DATABASE_URL, and keep"
            " the owner for TERTULIA_MIGRATION_URL."
        )


async def refuse_other_schema(connection: Connection) -> None:
    """A server that meets an older schema would fail in the middle of a request."""
    try:
        done = {str(row["name"]) for row in await connection.fetch("SELECT name FROM migrations")}
    except (asyncpg.UndefinedTableError, asyncpg.InsufficientPrivilegeError):
        done = set[str]()
    missing = [name for name in expected() if name not in done]
    if missing:
        raise NotMigrated(
            f"The database is not migrated: {', '.join(missing)} is missing. Run `tertulia migrate` with"
            " TERTULIA_MIGRATION_URL set to the owner of the database."
        )
