"""A victim with a secret, and those who want it."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from tertulia.embedded import Services
from tests.support.client import User
from tests.support.instance import SECRET, Instance
from tests.support.rows import Rows, connect

OLD_SECRET = "the-secret-before-this-one-0123456789abcdef"


class Victim(NamedTuple):
    """Somebody who has said something, with all that names it."""

    user: User
    secret: str
    message: str
    turn: str
    conversation: str
    handle: str
    session: str
    notification: str


@pytest.fixture
async def rows(backends: Services) -> AsyncIterator[Rows]:
    connection = await connect(backends.migration_url)
    yield Rows(connection)
    await connection.close()


@pytest.fixture
async def victim(server: Instance, rows: Rows) -> AsyncGenerator[Victim]:
    tenant, secret, handle = (f"{word}-{uuid4().hex[:8]}" for word in ("tenant", "secret", "handle"))
    async with User(server.url, "vera", tenant) as user:
        sent = await user.send(f"The word is {secret}.", handle)
        await user.answered(sent)
        notification = uuid4()
        await rows.connection.execute(
            "INSERT INTO notifications (tenant, id, from_user_id, to_user_id, message)"
            " VALUES ($1, $2, 'vera', 'vera', $3)",
            tenant,
            notification,
            secret,
        )
        session = await user.session_id(sent)
        yield Victim(
            user,
            secret,
            sent["message_id"],
            sent["turn_id"],
            sent["conversation_id"],
            handle,
            session,
            str(notification),
        )


@pytest.fixture(params=["of the same tenant", "of another tenant", "of the same name elsewhere"])
async def attacker(request: pytest.FixtureRequest, server: Instance, victim: Victim) -> AsyncGenerator[User]:
    name, tenant = {
        "of the same tenant": ("mallory", victim.user.tenant),
        "of another tenant": ("mallory", "elsewhere"),
        "of the same name elsewhere": ("vera", "elsewhere"),
    }[request.param]
    async with User(server.url, name, tenant) as user:
        yield user


@pytest.fixture(scope="session")
def strict(settings: dict[str, Any], folder: Path) -> Generator[Instance]:
    """A server with narrow limits, an audience, an issuer, allowed origins, and a secret in rotation."""
    narrow = {
        "secret": f"{SECRET},{OLD_SECRET}",
        "audience": "tertulia",
        "issuer": "https://id.example",
        "allowed_origins": "https://app.example, https://other.example",
        "user_requests_per_minute": 80,
        "tenant_requests_per_minute": 120,
        "subscriptions_per_socket": 3,
        "sockets_per_user": 2,
        "database_pool": 2,
    }
    with Instance("serve", folder, "--port", "0", "--no-worker", **(settings | narrow)) as running:
        yield running
