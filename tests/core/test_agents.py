"""What an agent may be: every part is checked, and a mistake is told by the part's name."""

from typing import Any

import pytest
from msgspec import structs

from tertulia.core.agents import AgentProfile, checked, is_agent_id, profile
from tertulia.core.errors import InvalidRequest

AGENT = AgentProfile("analyst", "数据分析师")


@pytest.mark.parametrize(
    "name", ["a", "1", "companion-xiaoYue", "数据", "a.b_c-d", "x" * 64, "_", "123e4567-e89b-12d3-a456"]
)
def test_an_id_is_made_of_letters_digits_and_little_else(name: str) -> None:
    assert is_agent_id(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "-a", ".a", "a b", "a/b", "a\n", "a\x00", "a:b", "é\u0301 ", "x" * 65, "\ud800", "😀"),
        *("123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000"),
        "123e4567e89b12d3a456426614174000",
    ],
)
def test_an_id_is_nothing_else_and_never_a_uuid(name: str) -> None:
    assert not is_agent_id(name)


@pytest.mark.parametrize(
    "change",
    [
        {"display_name": "x" * 100},
        {"prompt": "x" * 20_000},
        {"model": "google_genai:gemini-2.5-flash"},
        {"model": "demo:"},
        {"model": "openai:ft/gpt:x"},
        {"window": 1},
        {"window": 1000},
        {"context_tokens": 1},
        {"context_tokens": 10_000_000},
    ],
)
def test_what_can_be_used_is_left_as_it_is(change: dict[str, Any]) -> None:
    agent = structs.replace(AGENT, **change)
    assert checked(agent) == agent


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"id": "a b"},
            "id: 1 to 64 letters, digits, `_`, `-` or `.`, beginning with a letter or digit; not a UUID.",
        ),
        ({"display_name": ""}, "display_name: 1 to 100 characters."),
        ({"display_name": " \u3000"}, "display_name: 1 to 100 characters."),
        ({"display_name": "x" * 101}, "display_name: 1 to 100 characters."),
        ({"prompt": "x" * 20_001}, "prompt: at most 20,000 characters."),
        ({"model": "gemini"}, "model: written provider:model, such as google_genai:gemini-2.5-flash."),
        ({"model": ":x"}, "model: written provider:model, such as google_genai:gemini-2.5-flash."),
        ({"model": "demo:\x00"}, "model: written provider:model, such as google_genai:gemini-2.5-flash."),
        ({"window": 0}, "window: 1 to 1,000 messages."),
        ({"window": 1001}, "window: 1 to 1,000 messages."),
        ({"context_tokens": 0}, "context_tokens: 1 to 10,000,000."),
        ({"context_tokens": 2**63}, "context_tokens: 1 to 10,000,000."),
        ({"display_name": "a\x00"}, "display_name and prompt: no NUL and no half surrogate pairs."),
        ({"prompt": "\ud800"}, "display_name and prompt: no NUL and no half surrogate pairs."),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked(structs.replace(AGENT, **change))
    assert str(refused.value) == sentence


def test_the_row_of_an_agent_becomes_its_profile_whatever_else_the_row_has() -> None:
    row = (
        '{"tenant": "acme", "id": "analyst", "display_name": "数据分析师", "kind": "worker", "prompt": "Count.",'
        ' "model": "demo:", "context_window": 5, "context_tokens": null, "strategy": "always", "new": 1}'
    )
    assert profile(row) == AgentProfile(
        "analyst", "数据分析师", "worker", "Count.", "demo:", 5, None, "always"
    )
