"""What a model is told of a conversation: a summary for routing, and data that can be referred to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec

from tertulia.core.model import ContentType, ContextMessage

SUMMARY_MESSAGES = 3
SUMMARY_CHARS = 280
KIND_CHARS = 100
ITEMS = 50
ITEM_CHARS = 240
PROMPT_CHARS = 6000


def tokens(text: str) -> int:
    """About how many tokens a model makes of it: a few for the message, one for a Chinese character, and so on."""
    wide = 0 if text.isascii() else sum(character > "\u2e7f" for character in text)
    return 4 + wide + (len(text) - wide + 3) // 4


def within_budget(costs: Sequence[int], budget: int) -> int:
    """How many of the last messages fit; each counts whole or not at all, and none is left out between others."""
    kept = 0
    for cost in reversed(costs):
        budget -= cost
        if budget < 0:
            break
        kept += 1
    return kept


def summary(messages: Sequence[ContextMessage]) -> str:
    """The last three things that were said, under the types of the structured data given so far.

    Briefing cards are left out: they are shown in a form of their own, which says what they are.
    """
    types = ", ".join(dict.fromkeys(_types(messages)))
    said = [message for message in messages if message.content_type is ContentType.TEXT][-SUMMARY_MESSAGES:]
    lines = [f"{message.role}: {_short(_text(message.content), SUMMARY_CHARS)}" for message in said]
    return "\n".join([f"Previous: {types}", *lines] if types else lines)


def as_prompt(structured_data: Mapping[str, object]) -> str:
    """The data as a model reads it: lists are numbered from 1, so that "the second one" is item 2."""
    kind = _short(str(structured_data.get("type", "data")), KIND_CHARS)
    rest = {key: value for key, value in structured_data.items() if key != "type"}
    body = rest["data"] if rest.keys() == {"data"} else rest
    text = "\n".join([f"{kind}:", *_lines(body)])
    return text if len(text) <= PROMPT_CHARS else f"{text[: PROMPT_CHARS - 1]}…"


def _types(messages: Sequence[ContextMessage]) -> Iterator[str]:
    for message in messages:
        if message.structured_data:
            yield _short(str(message.structured_data.get("type", "data")), KIND_CHARS)


def _lines(body: object) -> Iterator[str]:
    """A list item by item, an object key by key with its lists item by item, anything else in one line."""
    if isinstance(body, list | tuple):
        yield from _numbered(cast("Sequence[object]", body))
    elif isinstance(body, Mapping):
        for key, value in cast("Mapping[str, object]", body).items():
            yield from _entry(key, value)
    else:
        yield _short(_text(body), ITEM_CHARS)


def _entry(key: str, value: object) -> Iterator[str]:
    if isinstance(value, list | tuple):
        yield f"{_short(key, KIND_CHARS)}:"
        yield from _numbered(cast("Sequence[object]", value))
    else:
        yield f"{_short(key, KIND_CHARS)}: {_short(_text(value), ITEM_CHARS)}"


def _numbered(items: Sequence[object]) -> Iterator[str]:
    for number, item in enumerate(items[:ITEMS], 1):
        yield f"{number}. {_short(_text(item), ITEM_CHARS)}"
    if len(items) > ITEMS:
        yield f"… and {len(items) - ITEMS} more"


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _short(text: str, limit: int) -> str:
    """The text in one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
