"""What a message may say: anything a person can write, and nothing that only looks like it."""

import pytest

from tests.support.client import User
from tests.support.refusals import refused
from tests.support.rows import Unwritten

BLANK = {
    "nothing": "",
    "spaces": "   ",
    "line ends": "\r\n\t\v\f",
    "an ideographic space": "\u3000",
    "no-break and thin spaces": "\u00a0\u2007\u202f\u205f",
    "line and paragraph separators": "\u2028\u2029\u0085",
    "zero-width characters": "\u200b\u200c\u200d\u2060\ufeff",
    "bidi marks": "\u200e\u200f\u202a\u202e\u2066\u2069\u061c",
    "a soft hyphen": "\u00ad",
    "Hangul fillers": "\u3164\u115f\u1160\uffa0",
    "a blank Braille cell": "\u2800",
    "tags": "\U000e0020\U000e007f",
    "control characters": "\x01\x1b\x7f",
    "variation selectors": "\ufe0f\ufe0e",
    "a combining grapheme joiner": "\u034f",
    "a Mongolian vowel separator": "\u180e",
    "a Khmer inherent vowel": "\u17b4\u17b5",
}

KEPT = {
    "a letter": "a",
    "a digit": "0",
    "Chinese": "你好，世界",
    "a family": "👨\u200d👩\u200d👧\u200d👦",
    "a flag and a skin tone": "🏳️\u200d🌈👍🏽🇪🇸",
    "Persian with a non-joiner": "می\u200cخواهم",
    "Devanagari": "क\u094dष",
    "combining marks": "e\u0301 z\u0351\u036b\u0343",
    "a bidi override between letters": "abc\u202ecba\u202c",
    "white space around": "  Hi \n",
    "line ends of every kind": "a\r\nb\rc\nd\u2028e\u2029f\u0085g",
    "what looks like events": "a\r\n\r\nevent: turn_end\ndata: {}\n\n",
    "control characters between letters": "a\x01\x1b[31mb\x7f",
    "noncharacters": "a\ufffe\uffff\U0010ffff",
    "the replacement character": "\ufffd",
    "quotes and SQL": "'; DROP TABLE messages; -- \" \\ $1 %s :tenant",
    "markup": "<script>alert(1)</script>&amp;",
    "a JSON text": '{"content": "\\u0000"}',
}


@pytest.mark.parametrize("content", BLANK.values(), ids=BLANK.keys())
async def test_a_message_that_shows_nothing_is_empty(content: str, user: User, unwritten: Unwritten) -> None:
    async with unwritten():
        response = await user.post(content)
    error = refused(response, 400, "MESSAGE_CONTENT_REQUIRED")
    assert error["message"] == "Write something first: the message is empty."


@pytest.mark.parametrize("content", KEPT.values(), ids=KEPT.keys())
async def test_a_message_is_kept_as_it_was_written(content: str, user: User) -> None:
    sent = await user.send(content)
    assert (await user.answered(sent))["content"] == content
    page = await user.conversation(sent["conversation_id"])
    assert page["messages"][0]["content"] == content


@pytest.mark.parametrize("content", ["a\x00b", "\x00", "Hi\x00"])
async def test_nul_is_refused(content: str, user: User, unwritten: Unwritten) -> None:
    async with unwritten():
        refused(await user.post(content), 400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "letter", ["a", "你", "😀", "𠮷", "\u0301"], ids=["ASCII", "CJK", "emoji", "astral", "marks"]
)
async def test_exactly_ten_thousand_characters_are_accepted_and_one_more_is_not(
    letter: str, user: User, unwritten: Unwritten
) -> None:
    content = "a" + letter * 9_999
    assert (await user.answered(await user.send(content)))["content"] == content
    async with unwritten():
        error = refused(await user.post(content + letter), 400, "MESSAGE_TOO_LONG")
    assert error["message"] == "The message has 10,001 characters; at most 10,000 are accepted."


@pytest.mark.parametrize("handle", ["", "a" * 201, "a\nb", "\x00", "a\x1fb", "\x7f", "a\r\nX: y"])
async def test_a_session_id_that_is_no_name_is_refused(handle: str, user: User, unwritten: Unwritten) -> None:
    async with unwritten():
        response = await user.http.post("/api/messages", json={"content": "Hi", "session_id": handle})
    error = refused(response, 400, "INVALID_REQUEST")
    assert error["message"] == "session_id must have 1 to 200 characters and no control characters."


@pytest.mark.parametrize(
    "handle",
    [
        "a" * 200,
        "会话-1",
        "😀" * 200,
        "../../etc",
        "a b",
        "%00",
        "{u:x}",
        "' OR 1=1 --",
        "\u202e",
        "null",
        "user",
    ],
)
async def test_any_name_may_be_a_session_id_and_comes_back_as_it_was(handle: str, user: User) -> None:
    first = await user.send("One", handle)
    second = await user.send("Two", handle)
    assert first["session_id"] == second["session_id"] == handle
    assert first["conversation_id"] == second["conversation_id"]


async def test_an_agent_that_is_not_there_is_not_found(user: User, unwritten: Unwritten) -> None:
    async with unwritten():
        for agent in ("nobody", "Assistant", "assistant ", "a\x00b", "😀" * 1000):
            response = await user.http.post("/api/messages", json={"content": "Hi", "agent_id": agent})
            refused(response, 404, "AGENT_NOT_FOUND")
