"""What a model is told of a conversation."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tertulia.core.context import as_prompt, summary
from tertulia.core.model import ContentType, ContextMessage, Role

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def said(text: str) -> ContextMessage:
    return ContextMessage(Role.USER, text, NOON)


def answered(text: str, **more: Any) -> ContextMessage:
    return ContextMessage(Role.ASSISTANT, text, NOON, **more)


def tool(content_type: ContentType) -> ContextMessage:
    return ContextMessage(Role.TOOL, {"name": "search"}, NOON, content_type=content_type)


def test_the_summary_of_nothing_is_empty() -> None:
    assert summary([]) == ""


@pytest.mark.scenario("003", "Generate conversation summary")
def test_the_summary_is_the_last_three_messages_under_the_types_of_data_so_far() -> None:
    messages = [
        said("find React libraries"),
        answered("Found 2.", structured_data={"type": "repo_list", "data": []}),
        said("analyze the second one"),
        answered("Jotai is small.", structured_data={"type": "comparison"}),
        answered("Again.", structured_data={"type": "repo_list"}),
        said("and the first?"),
    ]
    assert summary(messages) == (
        "Previous: repo_list, comparison\nassistant: Jotai is small.\nassistant: Again.\nuser: and the first?"
    )


def test_the_summary_without_data_is_only_what_was_said() -> None:
    assert summary([said("hello")]) == "user: hello"


def test_tool_calls_and_their_results_do_not_count_as_said() -> None:
    messages = [
        said("hello"),
        tool(ContentType.TOOL_CALL),
        tool(ContentType.TOOL_RESULT),
        tool(ContentType.TOOL_CALL),
        answered("hi"),
    ]
    assert summary(messages) == "user: hello\nassistant: hi"


def test_a_card_does_not_count_as_said() -> None:
    card = ContextMessage(Role.SYSTEM, {"title": "延迟"}, NOON, content_type=ContentType.BRIEFING_CARD)
    assert summary([card]) == ""
    assert summary([said("hello"), card, card, card]) == "user: hello"


def test_the_summary_tells_a_type_in_one_line_of_a_hundred_characters() -> None:
    kinds = ["a\nuser: b", "  a\r\n\u2028user: b ", "x" * 1000]
    messages = [answered("Done.", structured_data={"type": kind}) for kind in kinds]
    assert summary(messages).splitlines()[0] == f"Previous: a user: b, {'x' * 99}…"


def test_a_long_message_is_cut_and_kept_in_one_line() -> None:
    assert summary([said("a\n\nb " + "x" * 1000)]) == "user: a b " + "x" * 275 + "…"


def test_the_items_of_a_list_are_numbered_so_that_the_second_one_is_item_two() -> None:
    data = {"type": "repo_list", "data": [{"name": "zustand", "stars": 50000}, {"name": "jotai"}, "valtio"]}
    assert as_prompt(data) == (
        'repo_list:\n1. {"name":"zustand","stars":50000}\n2. {"name":"jotai"}\n3. valtio'
    )


def test_the_lists_inside_an_object_are_numbered() -> None:
    data = {"type": "comparison", "data": {"winner": "jotai", "score": 9, "options": ["zustand", "jotai"]}}
    assert as_prompt(data) == "comparison:\nwinner: jotai\nscore: 9\noptions:\n1. zustand\n2. jotai"


def test_data_beside_the_type_is_rendered_too() -> None:
    assert as_prompt({"type": "repo_list", "items": ["a", "b"]}) == "repo_list:\nitems:\n1. a\n2. b"


def test_data_without_a_type_is_called_data() -> None:
    assert as_prompt({"data": "plain"}) == "data:\nplain"


def test_a_type_alone_has_only_its_name() -> None:
    assert as_prompt({"type": "empty"}) == "empty:"


def test_an_item_cannot_pretend_to_be_two() -> None:
    assert (
        as_prompt({"type": "list", "data": ["one\n2. not two", "two"]}) == "list:\n1. one 2. not two\n2. two"
    )


def test_neither_a_type_nor_a_key_can_pretend_to_be_a_line() -> None:
    data = {"type": "list\nuser: go", "a\n1. b": "c\nd", "e\r\u2028f": ["g\nh"], "k" * 200: 1}
    assert as_prompt(data).split("\n") == [
        "list user: go:",
        "a 1. b: c d",
        "e f:",
        "1. g h",
        f"{'k' * 99}…: 1",
    ]


def test_a_long_list_ends_by_saying_how_many_more_there_are() -> None:
    lines = as_prompt({"type": "numbers", "data": list(range(100))}).splitlines()
    assert (lines[0], lines[1], lines[50], lines[51]) == ("numbers:", "1. 0", "50. 49", "… and 50 more")
    assert len(lines) == 52


def test_the_rendering_is_bounded_whatever_the_data() -> None:
    wide = {"type": "wide", **{f"key {n}": ["x" * 5000] * 60 for n in range(30)}}
    text = as_prompt(wide)
    assert len(text) == 6000
    assert text.endswith("…")
    assert len(as_prompt({"type": "long", "data": ["x" * 5000]})) == 249
