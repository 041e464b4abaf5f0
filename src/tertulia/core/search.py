"""What a search shows of a message: an excerpt around the words found, and where they are in it."""

import re
import unicodedata

MARK, UNMARK = "\x02", "\x03"
BEFORE, LONGEST = 40, 240

# As the database cuts text into terms: see `store/functions/search.sql`.
_UNSPACED = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]+"
)


def excerpt(marked: str, wanted: str) -> tuple[str, list[tuple[int, int]]]:
    """The part of the text where the first word was found, and the places of all words in that part.

    In `marked` words stand between two marks; runs of unspaced characters are looked for here.
    """
    text, places = _unmarked(marked)
    for run in set(_UNSPACED.findall(unicodedata.normalize("NFKC", wanted))):
        places += [match.span() for match in re.finditer(re.escape(run), text)]
    places = _joined(sorted(places))
    start = max(0, places[0][0] - BEFORE) if places else 0
    end = min(len(text), start + LONGEST)
    head, tail = ("…" if start else ""), ("…" if end < len(text) else "")
    shift = len(head) - start
    inside = [(first + shift, min(last, end) + shift) for first, last in places if first < end]
    return head + text[start:end] + tail, inside


def _unmarked(marked: str) -> tuple[str, list[tuple[int, int]]]:
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    length = 0
    for number, part in enumerate(re.split(f"[{MARK}{UNMARK}]", marked)):
        if number % 2:
            places.append((length, length + len(part)))
        parts.append(part)
        length += len(part)
    return "".join(parts), places


def _joined(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places that touch or overlap, as one."""
    joined: list[tuple[int, int]] = []
    for first, last in places:
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
