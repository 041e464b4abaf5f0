"""Pages: how many, and from where."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple
from uuid import UUID

from litestar.params import Parameter

from tertulia.core.errors import InvalidRequest
from tertulia.faces.body import uuid
from tertulia.store.conversations import History

Limit = Annotated[int, Parameter(ge=1, le=200, description="how many, 1 to 200")]
Cursor = Annotated[str | None, Parameter(description="a cursor from an earlier page")]

Moment = tuple[datetime, UUID]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class WrongCursor(InvalidRequest):
    message = "That cursor is not one of ours. Leave it out to begin at the newest."


def seq_cursor(text: str | None) -> int | None:
    """The place in the log that a cursor means."""
    return None if text is None else _number(text, 18)


class Span(NamedTuple):
    """Which part of a log a page is to come from: before or after a place, or the newest."""

    before: int | None
    after: int | None

    @classmethod
    def of(cls, before: str | None, after: str | None) -> "Span":
        if before is not None and after is not None:
            raise InvalidRequest("Give `before` or `after`, not both.")
        return cls(seq_cursor(before), seq_cursor(after))

    def beside(self, history: History) -> tuple[str | None, str | None]:
        """The cursors of the pages before and after this one, where there may be any."""
        if not history.messages:
            return None, None
        forward = self.after is not None
        earlier = history.more or forward
        later = history.more if forward else self.before is not None
        first, last = str(history.messages[0].seq), str(history.messages[-1].seq)
        return first if earlier else None, last if later else None


def moment_cursor(text: str | None) -> Moment | None:
    """The row that a cursor means, and where it stood in time: it may be gone by now."""
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
