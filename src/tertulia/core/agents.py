"""What an agent is: who answers, in which words, with which model, and how much of a conversation it sees."""

import re
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from tertulia.core.errors import InvalidRequest
from tertulia.core.text import storable

Kind = Literal["hub", "companion", "worker"]
Strategy = Literal["mentioned", "relevant", "always"]

NAME_CHARS = 100
PROMPT_CHARS = 20_000
WINDOW = 1000
TOKENS = 10_000_000

_ID = re.compile(r"\w[\w.-]{0,63}")
_MODEL = re.compile(r"[a-z0-9_]+:[\x21-\x7e]{0,200}")


class AgentProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """One agent of the directory. What it leaves open (`None`) is as the server's settings say.

    `strategy` says when it answers in a group that did not mention it.
    """

    id: str
    display_name: str
    kind: Kind = "companion"
    prompt: str = ""
    model: str | None = None
    window: int | None = None
    context_tokens: int | None = None
    strategy: Strategy = "mentioned"


class _Stored(Struct, frozen=True):
    """The row of an agent as the database tells it."""

    id: str
    display_name: str
    kind: Kind
    prompt: str
    model: str | None
    context_window: int | None
    context_tokens: int | None
    strategy: Strategy


_rows = msgspec.json.Decoder(_Stored)


def profile(row: str) -> AgentProfile:
    """The agent that a row in JSON describes."""
    found = _rows.decode(row)
    return AgentProfile(
        id=found.id,
        display_name=found.display_name,
        kind=found.kind,
        prompt=found.prompt,
        model=found.model,
        window=found.context_window,
        context_tokens=found.context_tokens,
        strategy=found.strategy,
    )


def checked(agent: AgentProfile) -> AgentProfile:
    """The agent, if every part of it can be used; raises `InvalidRequest` that names the part."""
    for wrong in _faults(agent):
        raise InvalidRequest(wrong)
    return agent


def _faults(agent: AgentProfile) -> list[str]:
    checks: list[tuple[Any, str]] = [
        (
            is_agent_id(agent.id),
            "id: 1 to 64 letters, digits, `_`, `-` or `.`, beginning with a letter or digit; not a UUID.",
        ),
        (
            len(agent.display_name.strip()) >= 1 and len(agent.display_name) <= NAME_CHARS,
            f"display_name: 1 to {NAME_CHARS} characters.",
        ),
        (len(agent.prompt) <= PROMPT_CHARS, f"prompt: at most {PROMPT_CHARS:,} characters."),
        (
            agent.model is None or _MODEL.fullmatch(agent.model),
            "model: written provider:model, such as google_genai:gemini-2.5-flash.",
        ),
        (agent.window is None or 1 <= agent.window <= WINDOW, f"window: 1 to {WINDOW:,} messages."),
        (
            agent.context_tokens is None or 1 <= agent.context_tokens <= TOKENS,
            f"context_tokens: 1 to {TOKENS:,}.",
        ),
        (
            storable(agent.display_name) and storable(agent.prompt),
            "display_name and prompt: no NUL and no half surrogate pairs.",
        ),
    ]
    return [sentence for holds, sentence in checks if not holds]


def is_agent_id(text: str) -> bool:
    """Whether an agent may be called so. Never a UUID: where either may stand, a UUID is a conversation."""
    return _ID.fullmatch(text) is not None and not _is_uuid(text)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
