"""How much of a conversation a model has room for."""

import pytest

from tertulia.core.context import tokens, within_budget


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 4),
        ("a", 5),
        ("abcd", 5),
        ("abcde", 6),
        ("x" * 400, 104),
        ("返", 5),
        ("返工率", 7),
        ("返工率 50%", 8),
        ("\U00020000", 5),
        ("😀", 5),
        ("été", 5),
        ("カナ", 6),
    ],
)
def test_a_message_costs_four_a_wide_character_one_and_four_others_one(text: str, count: int) -> None:
    assert tokens(text) == count


@pytest.mark.parametrize(
    ("costs", "budget", "kept"),
    [
        ([], 10, 0),
        ([5, 5, 5], 15, 3),
        ([5, 5, 5], 14, 2),
        ([5, 5, 5], 5, 1),
        ([5, 5, 5], 4, 0),
        ([5, 5, 5], 0, 0),
        ([5, 5, 5], -1, 0),
        ([1, 9, 1], 9, 1),
        ([1, 9, 1, 1], 9, 2),
    ],
)
def test_the_newest_messages_are_kept_whole_and_without_a_gap(
    costs: list[int], budget: int, kept: int
) -> None:
    assert within_budget(costs, budget) == kept


def test_a_message_that_costs_nothing_is_kept_as_long_as_nothing_was_left_out() -> None:
    assert within_budget([0, 3, 0], 2) == 1
