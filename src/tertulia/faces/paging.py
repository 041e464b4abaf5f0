"""Pages: how many, and from where."""

from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

from litestar.params import Parameter

from tertulia.core.errors import InvalidRequest
from tertulia.faces.body import uuid

Limit = Annotated[int, Parameter(ge=1, le=200, description="how many, 1 to 200")]
Cursor = Annotated[str | None, Parameter(description="a cursor from an earlier page")]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class WrongCursor(InvalidRequest):
    message = "That cursor is not one of ours. Leave it out to begin at the newest."


def seq_cursor(text: str | None) -> int | None:
    """The place in the log that a cursor means."""
    return None if text is None else _number(text, 18)


def id_cursor(text: str | None) -> UUID | None:
    """The row that a cursor means."""
    return None if text is None else _row(text)


def moment_cursor(text: str | None) -> tuple[datetime, UUID] | None:
    """The row that a cursor means, and where it stood in time."""
    if text is None:
        return None
    microseconds, _, name = text.partition(".")
    return _EPOCH + _number(microseconds, 16) * _MICROSECOND, _row(name)


def at_moment(moment: datetime, name: UUID) -> str:
    """The cursor of a row that is sorted by time."""
    return f"{(moment - _EPOCH) // _MICROSECOND}.{name}"


def _row(text: str) -> UUID:
    if (name := uuid(text)) is None:
        raise WrongCursor
    return name


def _number(text: str, digits: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= digits):
        raise WrongCursor
    return int(text)
