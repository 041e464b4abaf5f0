"""What a search shows: an excerpt around the words found, and exactly where they are in it."""

import pytest

from tertulia.core.search import excerpt


def highlighted(text: str, marked: str | None, wanted: str) -> tuple[str, list[str]]:
    """The excerpt, and what is highlighted in it."""
    shown, places = excerpt(text, marked, wanted)
    return shown, [shown[first:last] for first, last in places]


def test_a_short_text_is_shown_whole_with_the_places_of_its_marked_words() -> None:
    assert excerpt("She runs, he ran.", "She \x02runs\x03, he \x02ran\x03.", "run") == (
        "She runs, he ran.",
        [(4, 8), (13, 16)],
    )


@pytest.mark.parametrize(
    ("text", "wanted", "places"),
    [
        ("代码返工率50%", "返工率", [(2, 5)]),
        ("返工又返工", "返工", [(0, 2), (3, 5)]),
        ("返工返工", "返工", [(0, 4)]),  # what touches is one
        ("我们的 AI 模型", "模型 我们", [(0, 2), (7, 9)]),
        ("资料、資料", "資料", [(3, 5)]),
        ("\U00020000", "\U00020000", [(0, 1)]),
        ("😀👩‍👩‍👧 \U00020000返工", "返工", [(8, 10)]),
        ("明日の会議", "会議", [(3, 5)]),
        ("회의는 내일", "회의", [(0, 2)]),
        ("ﾃｽﾄです", "テスト", [(0, 3)]),
        ("\uf900本", "豈", [(0, 1)]),
        ("返工两次，工率另算", "返工率", []),
    ],
)
def test_runs_of_unspaced_characters_are_found_by_their_code_points(
    text: str, wanted: str, places: list[tuple[int, int]]
) -> None:
    assert excerpt(text, None, wanted) == (text, places)


def test_marks_and_runs_are_joined_where_they_touch() -> None:
    assert excerpt("用AI模型吧", "\x04用\x04\x02AI\x03\x04模型吧\x04", "AI 模型") == ("用AI模型吧", [(1, 5)])


def test_words_written_in_full_width_are_shown_as_written() -> None:
    assert highlighted("ＧＰＴ评测", "\x02GPT\x03\x04评测\x04", "gpt") == ("ＧＰＴ评测", ["ＧＰＴ"])


def test_an_excerpt_begins_forty_characters_before_the_first_word_and_says_that_it_was_cut() -> None:
    text = "a" * 100 + " needle " + "b" * 300
    shown, places = excerpt(text, text.replace("needle", "\x02needle\x03"), "needle")
    assert shown == "…" + "a" * 39 + " needle " + "b" * 193 + "…"
    assert places == [(41, 47)]


@pytest.mark.parametrize("before", ["😀" * 100, "\U00020001" * 100, "e\u0301" * 50, "…" * 100])
def test_places_hold_in_a_cut_excerpt_whatever_stands_before(before: str) -> None:
    assert highlighted(f"{before}返工率 needle", f"{before}返工率 \x02needle\x03", "needle 返工率") == (
        f"…{before[-40:]}返工率 needle",
        ["返工率", "needle"],
    )


def test_a_text_that_ends_with_its_excerpt_is_not_said_to_go_on() -> None:
    assert excerpt("x" * 60 + "返工", None, "返工") == ("…" + "x" * 40 + "返工", [(41, 43)])


def test_words_beyond_the_excerpt_are_not_highlighted_and_one_that_it_cuts_ends_with_it() -> None:
    text = "返工" + "。" * 237 + "返工率返工"
    assert excerpt(text, None, "返工") == (text[:240] + "…", [(0, 2), (239, 240)])
    long = "a" * 10_000
    assert excerpt(long, f"\x02{long}\x03", long) == ("a" * 240 + "…", [(0, 240)])


def test_a_text_in_which_nothing_is_marked_is_shown_from_its_beginning() -> None:
    assert excerpt("a" * 300, "a" * 300, "b") == ("a" * 240 + "…", [])
    assert excerpt("", None, "返工") == ("", [])


def test_what_is_looked_for_is_text_and_no_pattern() -> None:
    assert excerpt("返工.*率", None, "返工.*") == ("返工.*率", [(0, 2)])
