"""What counts as a message: text that a person could have written, of a bounded length."""

import re
import unicodedata

from tertulia.core.errors import InvalidRequest, MessageContentRequired, MessageTooLong

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_INVISIBLE = frozenset("\u115f\u1160\u3164\uffa0\u2800")  # letters by category, blank to the eye
_HANDLE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,200}")


def message_text(text: str, limit: int) -> str:
    """The text, if it has something to read and at most `limit` code points."""
    if _UNSTORABLE.search(text):
        raise InvalidRequest("The message holds a character that cannot be stored (NUL or half a surrogate pair).")
    if len(text) > limit:
        raise MessageTooLong(f"The message has {len(text):,} characters; at most {limit:,} are accepted.")
    if not any(map(_visible, text)):
        raise MessageContentRequired
    return text


def _visible(character: str) -> bool:
    return not (
        character.isspace() or character in _INVISIBLE or unicodedata.category(character) in ("Cf", "Cc", "Zs")
    )


def client_handle(text: str, name: str) -> str:
    """A name that the client gives to something of its own: 1 to 200 characters, none of them control characters."""
    if not _HANDLE.fullmatch(text):
        raise InvalidRequest(f"{name} must have 1 to 200 characters and no control characters.")
    return text
