"""Secrets stay where they belong: not in logs, answers, addresses, arguments or other processes."""

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
from redis.asyncio import Redis

from tertulia.embedded import Services
from tests.support.client import User
from tests.support.instance import SECRET, Instance

API_KEY = "AIza-not-for-anybodys-eyes"


@pytest.fixture
def talkative(settings: dict[str, Any], folder: Path) -> Generator[Instance]:
    """A server that logs all it can."""
    loud = {"google_api_key": API_KEY, "log_level": "debug"}
    with Instance("serve", folder, "--port", "0", **(settings | loud)) as running:
        yield running


async def test_tokens_credentials_keys_and_words_are_not_in_the_logs(talkative: Instance) -> None:
    async with User(talkative.url, "sue", "secrets") as user:
        sent = await user.send(
            '[[text {"said": "the-answer-is-private"}]] the-question-is-private', "the-handle"
        )
        await user.answered(sent)
        session = await user.session_id(sent)
        async with user.socket() as socket:
            await socket.subscribe(session)
            await socket.until("subscribed")
            await socket.say(type="auth", token=user.token)
            await socket.say(type="subscribe", sessionId=session + "x")
            await socket.until("error")
            await socket.connection.send(f'{{"type": "auth", "token": "{user.token}')
            await socket.until("error")
        for content in ('[[status {"code": 400}]]', "[[cut]]", "[[malformed]]"):
            await user.answered(await user.send(content + " the-question-is-private"), patience=60)
        await user.http.get(f"/api/conversations/{session}?token={user.token}")
        await user.http.post("/api/messages", content=b'{"content": "the-question-is-private"')
        await user.http.get("/nope", headers={"Authorization": f"Bearer {user.token}x"})
    said = talkative.text
    assert '"event"' in said
    secrets = (user.token, user.token.split(".")[2], session, SECRET, API_KEY, "is-private", "the-handle")
    assert [secret for secret in secrets if secret in said] == []


async def test_metrics_name_no_user_no_tenant_and_no_conversation(talkative: Instance) -> None:
    async with User(talkative.url, "sue-ellen", "secret-tenant") as user:
        sent = await user.send("Hi", "secret-handle")
        await user.answered(sent)
        said = (await user.http.get("/metrics")).text
    words = ("sue-ellen", "secret-tenant", "secret-handle", *sent.values())
    assert [word for word in words if word in said and word != "queued"] == []


async def test_credentials_are_in_no_key_and_no_value_of_redis(
    talkative: Instance, backends: Services
) -> None:
    async with User(talkative.url, "sue", "redis-secrets") as user:
        sent = await user.send("Hi")
        await user.answered(sent)
        session = await user.session_id(sent)
        async with user.socket() as socket:
            await socket.subscribe(session)
            await socket.until("subscribed")
            async with Redis.from_url(backends.redis_url) as redis:
                for key in [key async for key in redis.scan_iter(count=1000)]:
                    assert session.encode() not in key
                    assert session.encode() not in await redis.dump(key)
                channels = await redis.execute_command("PUBSUB", "CHANNELS")
                assert not [channel for channel in channels if session.encode() in channel]


async def test_nothing_secret_is_an_argument_of_a_process(talkative: Instance) -> None:
    process = psutil.Process(talkative.pid)
    for each in (process, *process.children(recursive=True)):
        line = " ".join(each.cmdline())
        assert not [secret for secret in (SECRET, API_KEY) if secret in line], line


async def test_embedded_services_get_neither_secret_nor_key(folder: Path) -> None:
    settings = {"secret": SECRET, "google_api_key": API_KEY, "data_dir": folder / "alone"}
    with Instance("serve", folder, "--port", "0", **settings) as running:
        children = await asyncio.to_thread(psutil.Process(running.pid).children, recursive=True)
        assert {"postgres", "valkey-server"} <= {child.name() for child in children}
        for child in children:
            handed = " ".join([*child.cmdline(), *(f"{k}={v}" for k, v in child.environ().items())])
            assert not [word for word in (SECRET, API_KEY, "TERTULIA_", "GOOGLE_") if word in handed], handed


async def test_answers_have_no_headers_but_those_that_describe_them(talkative: Instance) -> None:
    async with User(talkative.url, "sue", "headers") as user:
        response = await user.http.get("/api/notifications")
        assert set(response.headers) == {"date", "content-type", "content-length"}
