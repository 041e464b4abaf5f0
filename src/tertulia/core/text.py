"""What counts as a message: text that a person could have written, of a bounded length."""

import re
import unicodedata

from tertulia.core.errors import InvalidRequest, MessageContentRequired, MessageTooLong

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# Letters, marks and a symbol by category, but blank to the eye.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_HANDLE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")


def message_text(text: str, limit: int) -> str:
    """The text, if it has something to read and at most `limit` code points."""
    if _UNSTORABLE.search(text):
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


def client_handle(text: str, name: str) -> str:
    """A name that the client gives to something of its own: 1 to 200 characters, none of them control characters."""
    if not _HANDLE.fullmatch(text):
        raise InvalidRequest(f"{name} must have 1 to 200 characters and no control characters.")
    return text
