"""The one clock."""

from datetime import UTC, datetime


def now() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)
