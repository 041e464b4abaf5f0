"""Pages: how many, and from where."""

from typing import Annotated

from litestar.params import Parameter

from tertulia.core.errors import InvalidRequest

Limit = Annotated[int, Parameter(ge=1, le=200, description="how many, 1 to 200")]


def seq_cursor(text: str | None) -> int | None:
    """The place in the log that a cursor means."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidRequest("That cursor is not one of ours. Leave it out to begin at the newest.")
    return int(text)
