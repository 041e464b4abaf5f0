"""Briefings: what an agent tells a user unasked, and how a card reads in a conversation."""

from datetime import datetime, tzinfo
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from tertulia.core.errors import InvalidRequest
from tertulia.core.text import storable

Priority = Literal["P0", "P1", "P2"]
BriefingType = Literal["alert", "insight", "summary", "action"]
BriefingStatus = Literal["new", "read", "actioned", "dismissed"]
ActionKind = Literal["view_report", "start_conversation", "dismiss", "custom"]

TITLE_CHARS = 100
SUMMARY_CHARS = 5000
ACTIONS = 20
CONTEXT_BYTES = 65_536


class Action(Struct, frozen=True, forbid_unknown_fields=True):
    """What a user can do with a briefing: a button."""

    label: str
    action: ActionKind
    data: dict[str, Any] = {}


class Draft(Struct, frozen=True, forbid_unknown_fields=True):
    """A briefing as it is posted. `dedupe_key` makes it come once, however often it is posted."""

    user_id: str
    title: str
    summary: str
    agent_id: str | None = None
    priority: Priority = "P2"
    briefing_type: BriefingType = "insight"
    impact: str | None = None
    actions: list[Action] = []
    context_data: dict[str, Any] | None = None
    importance_score: float | None = None
    dedupe_key: str | None = None


class Card(Struct, frozen=True):
    """What the log keeps of a briefing that became a message."""

    title: str
    summary: str
    priority: str
    created_at: datetime
    briefing_type: str = "insight"
    impact: str | None = None


def checked(draft: Draft) -> Draft:
    """The draft, if every part of it says something and keeps its bounds; else `InvalidRequest` names the part."""
    texts = {
        "user_id": (draft.user_id, 200),
        "title": (draft.title, TITLE_CHARS),
        "summary": (draft.summary, SUMMARY_CHARS),
        "impact": (draft.impact, SUMMARY_CHARS),
        "dedupe_key": (draft.dedupe_key, 200),
    } | {f"actions[{number}].label": (each.label, 100) for number, each in enumerate(draft.actions)}
    for name, (text, limit) in texts.items():
        if text is not None and not (text.strip() and len(text) <= limit):
            raise InvalidRequest(f"{name}: 1 to {limit:,} characters.")
        if text is not None and not storable(text):
            raise InvalidRequest(f"{name}: no NUL and no half surrogate pairs.")
    if len(draft.actions) > ACTIONS:
        raise InvalidRequest(f"actions: at most {ACTIONS}.")
    encoded = msgspec.json.encode([draft.context_data, draft.actions])
    if len(encoded) > CONTEXT_BYTES or b"\\u0000" in encoded:
        raise InvalidRequest(
            f"context_data and actions: at most {CONTEXT_BYTES:,} bytes of JSON, without NUL."
        )
    return draft


def offered(actions: msgspec.Raw) -> set[str]:
    """What a stored briefing offers to do."""
    return {each.action for each in msgspec.json.decode(actions, type=list[Action])}


def as_text(content: dict[str, Any], zone: tzinfo) -> str:
    """The card as a model reads it. It always has these four lines, whatever its texts hold."""
    card = msgspec.convert(content, Card)
    return (
        f"[简报 {card.created_at.astimezone(zone):%Y-%m-%d %H:%M}]\n"
        f"标题：{_line(card.title)}\n"
        f"摘要：{_line(card.summary)}...\n"
        f"优先级：{card.priority}"
    )


def zone(name: str | None, default: str) -> tzinfo:
    """The time zone of this name; names come from tokens, so a wrong one is passed over."""
    for each in (name, default):
        try:
            if each:
                return ZoneInfo(each)
        except (KeyError, ValueError, OSError):
            continue
    return ZoneInfo("UTC")


def _line(text: str) -> str:
    return " ".join(text.split())
