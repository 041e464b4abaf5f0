"""Bodies that are no message: each is refused with a 400 or 413 and leaves nothing behind."""

import gzip
import json
from collections.abc import AsyncIterator

import pytest

from tests.support.client import User
from tests.support.refusals import refused
from tests.support.rows import Rows, Unwritten

UNREADABLE = {
    "empty": b"",
    "white space": b" \r\n\t",
    "truncated": b'{"content": "Hi"',
    "two documents": b'{"content": "Hi"}{}',
    "a byte order mark": b'\xef\xbb\xbf{"content": "Hi"}',
    "UTF-16": '{"content": "Hi"}'.encode("utf-16"),
    "invalid UTF-8": b'{"content": "\xff\xfe"}',
    "a surrogate in UTF-8": b'{"content": "\xed\xa0\x80"}',
    "half a surrogate pair": rb'{"content": "\ud83d"}',
    "half a surrogate pair as a key": rb'{"content": "Hi", "\udc00": 1}',
    "a bare NUL": b'{"content": "a\x00b"}',
    "NaN": b'{"content": NaN}',
    "Infinity": b'{"content": -Infinity}',
    "duplicate keys": b'{"content": "Hi", "content": "Ho"}',
    "a key twice, once escaped": rb'{"content": "Hi", "c\u006fntent": "Ho"}',
    "single quotes": b"{'content': 'Hi'}",
    "a form": b"content=Hi&session_id=a",
    "an XML document": b"<content>Hi</content>",
}

UNFITTING = {
    "100,000 open brackets": b"[" * 100_000,
    "null": b"null",
    "an array": b'[{"content": "Hi"}]',
    "a string": b'"Hi"',
    "no content": b"{}",
    "null content": b'{"content": null}',
    "a number as content": b'{"content": 1e999}',
    "5,000 digits": b'{"content": ' + b"9" * 5000 + b"}",
    "100,000 levels of arrays": b'{"content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 levels of objects": b'{"content": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "an unknown field": b'{"content": "Hi", "user": "bob"}',
    "an unknown field in depth": b'{"content": "Hi", "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "an unknown field of 5,000 digits": b'{"content": "Hi", "a": ' + b"9" * 5000 + b"}",
    "an unknown field with a long name": b'{"content": "Hi", "' + b"f" * 100_000 + b'": 1}',
    "content parts": b'{"content": [{"type": "text", "text": "Hi"}]}',
    "a number as session_id": b'{"content": "Hi", "session_id": 5}',
    "an object as agent_id": b'{"content": "Hi", "agent_id": {}}',
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_a_body_that_is_no_json_is_refused_and_nothing_is_written(
    body: bytes, user: User, unwritten: Unwritten
) -> None:
    async with unwritten():
        response = await user.http.post(
            "/api/messages", content=body, headers={"Content-Type": "application/json"}
        )
    error = refused(response, 400, "INVALID_REQUEST")
    assert error["message"] == "The request body is not a JSON document that can be read."


@pytest.mark.parametrize("body", UNFITTING.values(), ids=UNFITTING.keys())
async def test_json_that_is_no_message_is_refused_with_the_reason_and_nothing_is_written(
    body: bytes, user: User, unwritten: Unwritten
) -> None:
    async with unwritten():
        response = await user.http.post("/api/messages", content=body)
    assert refused(response, 400, "INVALID_REQUEST")["message"].startswith("The request does not fit: ")


async def test_the_refusal_names_the_field_that_is_wrong(user: User) -> None:
    response = await user.http.post("/api/messages", json={"content": "Hi", "session_id": 5})
    assert refused(response, 400, "INVALID_REQUEST")["message"] == (
        "The request does not fit: Expected `str | null`, got `int` - at `$.session_id`."
    )


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/json",
        "application/json; charset=utf-8",
        "application/x-www-form-urlencoded",
        "application/vnd.api+json",
        ";;;",
    ],
)
async def test_json_is_taken_as_json_or_as_what_a_client_sends_that_says_nothing(
    content_type: str | None, user: User
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    response = await user.http.post("/api/messages", content=b'{"content": "Hi"}', headers=headers)
    assert response.status_code == 202


@pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data", "text/xml", "nonsense"])
async def test_what_says_that_it_is_no_json_is_refused(
    content_type: str, user: User, unwritten: Unwritten
) -> None:
    async with unwritten():
        response = await user.http.post(
            "/api/messages", content=b'{"content": "Hi"}', headers={"Content-Type": content_type}
        )
        refused(response, 415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_page_elsewhere_cannot_send_a_simple_request_in_somebodys_name(
    user: User, unwritten: Unwritten
) -> None:
    simple = {"Authorization": "", "Origin": "https://evil.example", "Content-Type": "text/plain"}
    async with unwritten():
        cookies = {"Cookie": f"token={user.token}; Authorization=Bearer {user.token}"}
        response = await user.http.post("/api/messages", json={"content": "Hi"}, headers=simple | cookies)
        refused(response, 401, "UNAUTHENTICATED")
        response = await user.http.post(
            f"/api/messages?token={user.token}", json={"content": "Hi"}, headers=simple
        )
        refused(response, 401, "UNAUTHENTICATED")
    assert "set-cookie" not in response.headers


async def test_no_page_elsewhere_is_allowed_to_read_an_answer(user: User) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    for response in (
        await user.http.get("/api/notifications", headers=asked),
        await user.http.options("/api/messages", headers=asked),
    ):
        assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, gzip"])
async def test_a_compressed_body_is_refused_before_it_is_unpacked(
    encoding: str, user: User, unwritten: Unwritten
) -> None:
    bomb = gzip.compress(b'{"content": "' + b"a" * 50_000_000 + b'"}')
    async with unwritten():
        response = await user.http.post("/api/messages", content=bomb, headers={"Content-Encoding": encoding})
    error = refused(response, 400, "INVALID_REQUEST")
    assert error["message"] == "Compressed request bodies are not accepted."


async def test_a_body_that_says_it_is_not_encoded_is_taken(user: User) -> None:
    headers = {"Content-Encoding": "Identity"}
    response = await user.http.post("/api/messages", json={"content": "Hi"}, headers=headers)
    assert response.status_code == 202


async def test_a_body_above_the_limit_is_refused(user: User, unwritten: Unwritten) -> None:
    body = json.dumps({"content": "a" * 1_048_576}).encode()
    async with unwritten():
        refused(await user.http.post("/api/messages", content=body), 413, "BODY_TOO_LARGE")


async def test_an_endless_body_without_a_length_is_refused_at_the_limit(
    user: User, unwritten: Unwritten
) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 50_000_000:
            sent += 65_536
            yield b" " * 65_536

    async with unwritten():
        refused(await user.http.post("/api/messages", content=endless()), 413, "BODY_TOO_LARGE")


async def test_an_idempotency_key_must_be_short_and_visible(user: User, unwritten: Unwritten) -> None:
    async with unwritten():
        for key in (b"", b"x" * 256, b"a b", b"a\tb", "é".encode("latin-1"), "键".encode()):
            response = await user.http.post(
                "/api/messages", json={"content": "Hi"}, headers=[(b"Idempotency-Key", key)]
            )
            refused(response, 400, "INVALID_REQUEST")


async def test_an_idempotency_key_of_255_characters_is_taken_and_kept_apart_by_case(
    user: User, rows: Rows
) -> None:
    sent = [await user.send("Hi", key=key) for key in ("k" * 255, "K" * 255, "k" * 255)]
    assert sent[0] == sent[2] != sent[1]
    assert (await rows.count(user.tenant))["messages"] >= 2


async def test_another_body_under_the_same_key_is_a_conflict_and_writes_nothing(
    user: User, unwritten: Unwritten
) -> None:
    await user.answered(await user.send("One", key="the-key"))
    async with unwritten():
        refused(await user.post("Two", key="the-key"), 409, "IDEMPOTENCY_KEY_REUSED")
