"""What a search shows of a message: an excerpt around the words found, and where they are in it."""

import re
import unicodedata

MARK, UNMARK, PARTED = "\x02", "\x03", "\x04"
BEFORE, LONGEST = 40, 240

# As the database cuts text into terms: see `store/functions/search.sql`.
_UNSPACED = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]+"
)


# Characters written in another form than the one they are looked for by, one for one.
_PLAIN = {
    code: plain
    for code in (
        *range(0x2F00, 0x2FE0),
        *range(0xF900, 0xFB00),
        *range(0xFF66, 0xFF9E),
        *range(0x2F800, 0x2FA20),
    )
    if len(plain := unicodedata.normalize("NFKC", chr(code))) == 1
}


def excerpt(text: str, marked: str | None, wanted: str) -> tuple[str, list[tuple[int, int]]]:
    """The part of the text where the first word was found, and the places of all words in that part.

    In `marked` the words of the text stand between marks; runs of unspaced characters are looked for here.
    """
    places = _marks(marked) if marked else []
    plain = text.translate(_PLAIN)
    for run in set(_UNSPACED.findall(unicodedata.normalize("NFKC", wanted))):
        places += [match.span() for match in re.finditer(re.escape(run), plain)]
    places = _joined(sorted(places))
    start = max(0, places[0][0] - BEFORE) if places else 0
    end = min(len(text), start + LONGEST)
    head, tail = ("…" if start else ""), ("…" if end < len(text) else "")
    shift = len(head) - start
    inside = [(first + shift, min(last, end) + shift) for first, last in places if first < end]
    return head + text[start:end] + tail, inside


def _marks(marked: str) -> list[tuple[int, int]]:
    """What stands between marks, by its places in the text without them."""
    places: list[tuple[int, int]] = []
    length = 0
    for number, part in enumerate(re.split(f"[{MARK}{UNMARK}]", marked.replace(PARTED, ""))):
        if number % 2:
            places.append((length, length + len(part)))
        length += len(part)
    return places


def _joined(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places that touch or overlap, as one."""
    joined: list[tuple[int, int]] = []
    for first, last in places:
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined
