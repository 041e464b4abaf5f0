"""Every route and every frame that the server describes, tried by strangers on what is Ann's: she loses nothing.

The routes are those of the OpenAPI document, the frames those of the AsyncAPI document: one that has no entry in
`ways_in` makes the proof fail.
"""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tertulia.embedded import Services
from tests.attacks.belongings import TRANSIENT, Ann, ann_at, fetched, rows_of
from tests.attacks.ways_in import FRAMES, OPEN, ROUTES, Kind
from tests.support.backends import of_superuser, private
from tests.support.client import Socket, User
from tests.support.instance import Instance
from tests.support.standing import post

Connection = asyncpg.Connection


@dataclass(frozen=True)
class Stranger:
    """Somebody who is not Ann, or (`nobody`) who has no token at all."""

    kind: Kind
    tenant: str
    name: str
    http: httpx.AsyncClient

    @property
    def namesake(self) -> str:
        """Whose rows in Ann's tenant are not hers."""
        return self.name if self.kind == "inside" else ""


STRANGERS: dict[str, tuple[Kind, str, str]] = {
    "another user": ("inside", "mallory", "user"),
    "another user with the token of an agent": ("inside", "mallory", "agent"),
    "the same name elsewhere": ("outside", "ann", "user"),
    "an admin of the same name elsewhere": ("admin", "ann", "admin"),
    "nobody": ("nobody", "", ""),
}


@pytest.fixture(scope="module")
async def house_settings(backends: Services, settings: dict[str, Any]) -> dict[str, Any]:
    """A database of its own, in which what is deleted stays for as long as the tests take."""
    return settings | await private(backends) | {"delete_seconds": 3600, "sweep_seconds": 0.1}


@pytest.fixture(scope="module")
def house(house_settings: dict[str, Any], folder: Path) -> Generator[Instance]:
    with Instance("serve", folder, "--port", "0", **house_settings) as running:
        yield running


@pytest.fixture
async def postgres(house_settings: dict[str, Any]) -> AsyncIterator["Connection[Any]"]:
    connection = await asyncpg.connect(of_superuser(house_settings["database_url"]))
    yield connection
    await connection.close()


@pytest.fixture
async def ann(house: Instance, postgres: "Connection[Any]") -> AsyncGenerator[Ann]:
    one = await ann_at(house.url, postgres)
    async with one.user, one.admin:
        yield one


@pytest.fixture(params=STRANGERS.values(), ids=STRANGERS.keys())
async def stranger(request: pytest.FixtureRequest, ann: Ann) -> AsyncGenerator[Stranger]:
    async with somebody(ann, *request.param) as one:
        yield one


@asynccontextmanager
async def somebody(
    ann: Ann, kind: Kind, name: str = "mallory", role: str = "user"
) -> AsyncGenerator[Stranger]:
    """One of the strangers; those from elsewhere come from a tenant that nobody has met."""
    if kind == "nobody":
        async with httpx.AsyncClient(base_url=ann.user.url, trust_env=False) as http:
            yield Stranger(kind, "", "", http)
        return
    tenant = ann.user.tenant if kind == "inside" else f"elsewhere-{uuid4().hex[:8]}"
    async with User(ann.user.url, name, tenant, role=role) as user:
        yield Stranger(kind, tenant, name, user.http)


def filled(value: Any, ann: Ann) -> Any:
    """The same with Ann's things where their names stand in braces."""
    if isinstance(value, dict):
        return {key: filled(each, ann) for key, each in value.items()}
    return value.format(**ann.things) if isinstance(value, str) else value


def told(ann: Ann, stranger: Stranger, given: str, got: str) -> list[str]:
    """Which of Ann's things are in an answer, and were not in the question."""
    hidden = ann.hidden_from(stranger.tenant)
    return [name for name, thing in hidden.items() if thing in got and thing not in given]


async def breaches(ann: Ann, stranger: Stranger, postgres: "Connection[Any]") -> list[str]:
    """What a stranger got or did, by any route, that should not have been possible."""
    document = (await stranger.http.get("/docs/openapi.json")).json()["paths"]
    described = {f"{method.upper()} {path}" for path, methods in document.items() for method in methods}
    found = [f"{route} is tried by nobody" for route in sorted(described ^ set(ROUTES))]
    before = await rows_of(postgres, ann.user.tenant, but=stranger.namesake)
    empty = [name for name, rows in before.items() if not rows and name not in TRANSIENT]
    found += [f"Ann has nothing in {name}" for name in empty]
    for route in [each for each in ROUTES if each in described]:
        found += await _tried(route, ann, stranger)
    after = await rows_of(postgres, ann.user.tenant, but=stranger.namesake)
    return found + [f"Ann's {name} are not as they were" for name in after if before[name] != after[name]]


async def _tried(route: str, ann: Ann, stranger: Stranger) -> list[str]:
    found: list[str] = []
    method, path = route.split(" ")
    for number, each in enumerate(ROUTES[route]):
        body, query = filled(each.body, ann), filled(each.query or {}, ann)
        headers = {"Idempotency-Key": filled(each.key, ann)} if each.key else {}
        if each.path:
            before, _, rest = path.partition("{")
            address = before + filled(each.path, ann) + rest.partition("}")[2]
        else:
            address = path
        status, got = await fetched(stranger.http, method, address, params=query, body=body, headers=headers)
        expected = 200 if route in OPEN else each.expected(stranger.kind)
        if status != expected:
            found.append(f"{route} #{number} was answered with {status}, not {expected}")
        given = address + json.dumps([body, query, headers])
        found += [f"{route} #{number} tells the {name}" for name in told(ann, stranger, given, got)]
    return found


async def test_by_no_route_a_stranger_gets_or_changes_anything_of_anns(
    ann: Ann, stranger: Stranger, postgres: "Connection[Any]"
) -> None:
    assert await breaches(ann, stranger, postgres) == []


SPOILT: dict[str, tuple[str, Kind, set[str]]] = {
    "a policy lets everybody in": (
        "CREATE POLICY hole ON conversations TO tertulia_server USING (true)",
        "inside",
        {
            "GET /api/conversations/{conversation_id} #0 tells the session",
            "GET /api/conversations/{conversation_id}/events #0 was answered with 200, not 404",
            "Ann's conversations are not as they were",
        },
    ),
    "agents are for all tenants": (
        "CREATE POLICY hole ON agents TO tertulia_server USING (true)",
        "outside",
        {
            "GET /api/agents #0 tells the prompt",
            "GET /api/agents/{agent_id} #0 was answered with 200, not 404",
        },
    ),
    "a policy is gone": (
        "DROP POLICY own ON conversations",
        "inside",
        {"POST /api/conversations #0 was answered with 500, not 201"},
    ),
}


@pytest.mark.parametrize(("statement", "kind", "noticed"), SPOILT.values(), ids=SPOILT.keys())
async def test_the_proof_notices_one_spoilt_policy(
    statement: str, kind: Kind, noticed: set[str], ann: Ann, postgres: "Connection[Any]"
) -> None:
    own = await postgres.fetchval(
        "SELECT pg_get_expr(polqual, polrelid) FROM pg_policy"
        " WHERE polrelid = 'conversations'::regclass AND polname = 'own'"
    )
    await postgres.execute(statement)
    try:
        async with somebody(ann, kind) as stranger:
            found = await breaches(ann, stranger, postgres)
    finally:
        await postgres.execute(
            "DROP POLICY IF EXISTS hole ON conversations; DROP POLICY IF EXISTS hole ON agents"
        )
        await postgres.execute(
            "DROP POLICY IF EXISTS own ON conversations;"
            f"CREATE POLICY own ON conversations TO tertulia_server USING ({own})"
        )
    assert noticed <= set(found), found


async def test_a_route_that_nobody_thought_of_makes_the_proof_fail(
    ann: Ann, postgres: "Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(ROUTES, "GET /api/search")
    async with somebody(ann, "nobody") as stranger:
        assert await breaches(ann, stranger, postgres) == ["GET /api/search is tried by nobody"]


def test_every_frame_that_a_client_may_say_is_tried(house: Instance) -> None:
    document = httpx.get(f"{house.url}/docs/asyncapi.json", trust_env=False).json()
    described = {name for name in document["channels"]["ws"]["messages"] if name.startswith("client.")}
    assert {f"client.{kind}" for kind in FRAMES} == described


@asynccontextmanager
async def _socket(stranger: Stranger) -> AsyncGenerator[Socket]:
    address = str(stranger.http.base_url).replace("http", "ws", 1).rstrip("/") + "/ws"
    token = stranger.http.headers.get("Authorization")
    headers = {"Authorization": token} if token else {}
    async with connect(address, additional_headers=headers, proxy=None) as connection:
        yield Socket(connection)


async def _answers(socket: Socket, frame: dict[str, str]) -> list[str]:
    """The types of all that comes until a ping after the frame is answered, or the socket ends."""
    with contextlib.suppress(ConnectionClosed):
        await socket.say(**frame)
        await socket.say(type="ping")
        await socket.until("pong")
    assert socket.connection.close_code in (None, 4001)
    return [seen["type"] for seen in socket.seen]


async def test_by_no_frame_a_stranger_gets_or_changes_anything_of_anns(
    ann: Ann, stranger: Stranger, postgres: "Connection[Any]"
) -> None:
    before = await rows_of(postgres, ann.user.tenant, but=stranger.namesake)
    given = ""
    for kind, frames in FRAMES.items():
        for fields, answer in frames:
            frame = {"type": kind} | filled(fields, ann)
            given += json.dumps(frame)
            async with _socket(stranger) as socket:
                answers = await _answers(socket, frame)
                assert told(ann, stranger, given, json.dumps(socket.seen)) == [], (frame, socket.seen)
                nobody = stranger.kind == "nobody" and kind in ("subscribe", "message", "auth")
                assert ("error" if nobody else answer) in answers, (frame, socket.seen)
    assert await rows_of(postgres, ann.user.tenant, but=stranger.namesake) == before


async def test_what_ann_says_and_is_told_is_heard_by_nobody_else(ann: Ann, stranger: Stranger) -> None:
    async with _socket(stranger) as socket, ann.user.socket() as own:
        for name in ("session", "standing_session", "conversation", "standing"):
            if stranger.kind != "nobody":
                await socket.subscribe(ann.things[name])
                assert (await socket.until("error"))["code"] == "CONVERSATION_NOT_FOUND"
        await ann.user.send("[[text {}]] Only for me: whisper", ann.things["conversation"])
        await own.until("message")
        await post(ann.admin, user_id="ann", agent_id=ann.things["agent"], title="whisper")
        await own.until("briefing")
        await socket.say(type="ping")
        await socket.until("pong")
        assert {seen["type"] for seen in socket.seen} <= {"connected", "error", "pong"}
