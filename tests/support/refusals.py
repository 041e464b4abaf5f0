"""What a refusal looks like, whatever was refused."""

from typing import Any

import httpx

INSIDES = (
    "Traceback",
    "asyncpg",
    "msgspec",
    "litestar",
    "SELECT ",
    "INSERT ",
    "api.",
    "/src/",
    "site-packages",
)


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error of an answer that is as it should be: the status, the code, and nothing of our insides."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"code", "message"}
    assert error["code"] == code, error
    assert len(response.text) < 600, "what was sent is not sent back"
    assert not any(word in response.text for word in INSIDES), response.text
    return error
