"""What counts as a message: text that a person could have written, of a bounded length."""

import re
import unicodedata
from typing import Any, cast

from tertulia.core.errors import InvalidRequest, MessageContentRequired, MessageTooLong

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# Letters, marks and a symbol by category, but blank to the eye.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_TITLE = 50
_HANDLE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")


def storable(text: str) -> bool:
    """Whether PostgreSQL can keep it: no NUL, no half of a surrogate pair."""
    return _UNSTORABLE.search(text) is None


def cleaned(text: str) -> str:
    """Text of a model that can be kept and sent: without NUL, halves of a surrogate pair joined or replaced."""
    if storable(text):
        return text
    joined = text.replace("\x00", "").encode("utf-16-le", "surrogatepass")
    return joined.decode("utf-16-le", "replace")


def cleaned_json(value: Any) -> Any:
    """The same for all text in a JSON value."""
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, list):
        return [cleaned_json(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {cleaned(name): cleaned_json(each) for name, each in pairs}
    return value


def message_text(text: str, limit: int) -> str:
    """The text, if it has something to read and at most `limit` code points."""
    if not storable(text):
        raise InvalidRequest(
            "The message holds a character that cannot be stored (NUL or half a surrogate pair)."
        )
    if len(text) > limit:
        raise MessageTooLong(f"The message has {len(text):,} characters; at most {limit:,} are accepted.")
    if not any(map(_visible, text)):
        raise MessageContentRequired
    return text


def _visible(character: str) -> bool:
    return not (
        character.isspace()
        or _INVISIBLE.match(character)
        or unicodedata.category(character) in ("Cf", "Cc", "Zs")
    )


def title_text(text: str) -> str:
    """A title: 1 to 50 characters that say something."""
    if not storable(text) or len(text) > _TITLE or not any(map(_visible, text)):
        raise InvalidRequest(f"title: 1 to {_TITLE} characters.")
    return text


def client_handle(text: str, name: str) -> str:
    """A name that the client gives to something of its own: 1 to 200 characters, none of them control characters."""
    if not _HANDLE.fullmatch(text):
        raise InvalidRequest(f"{name} must have 1 to 200 characters and no control characters.")
    return text
