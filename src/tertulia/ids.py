"""The one source of identifiers."""

import secrets
import time
from uuid import UUID, uuid4


def conversation_id() -> UUID:
    """A random UUID (version 4): it tells nothing about when or where it was made."""
    return uuid4()


def row_id() -> UUID:
    """A UUID (version 7): rows written one after another lie together in the index."""
    milliseconds = time.time_ns() // 1_000_000
    return UUID(int=(milliseconds << 80 | 7 << 76 | secrets.randbits(76)) & ~(3 << 62) | (2 << 62))


def session_credential() -> str:
    """256 random bits: whoever holds it may listen to the session, so it is a secret."""
    return secrets.token_urlsafe(32)


def generation() -> str:
    """A short random name for one life of an event log."""
    return secrets.token_hex(4)
