"""Running it: is it alive, is it ready, how it is doing; several processes; an end that loses nothing."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from redis.asyncio import Redis

from tertulia.embedded import Embedded
from tertulia.store.migrate import migrate
from tests.scenarios.conftest import Alone, Someone, word
from tests.support.client import User
from tests.support.instance import Instance
from tests.support.observe import entries, eventually


async def get(server: Instance, path: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, timeout=20, trust_env=False) as client:
        return await client.get(path)


async def test_a_server_is_alive_and_ready_without_a_token(server: Instance) -> None:
    alive, ready = await get(server, "/healthz"), await get(server, "/readyz")
    assert (alive.status_code, alive.json()["status"]) == (200, "ok")
    assert ready.status_code == 200
    assert {k: ready.json()[k] for k in ("status", "postgresql", "redis")} == {
        "status": "ready",
        "postgresql": True,
        "redis": True,
    }


async def test_metrics_count_what_happened(server: Instance, ann: User) -> None:
    def value(text: str, name: str) -> float:
        return float(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[1])

    before = (await get(server, "/metrics")).text
    await ann.ask("Count me")
    await ann.ask('[[failure {"status": 403}]]')
    response = await get(server, "/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    accepted = "tertulia_messages_accepted_total"
    assert value(response.text, accepted) - value(before, accepted) == 2
    assert 'tertulia_turns_ended_total{status="done"}' in response.text
    assert 'tertulia_turns_ended_total{status="failed"}' in response.text
    for name in (
        "tertulia_requests_refused_total",
        "tertulia_wakeups_reclaimed_total",
        "tertulia_wakeups_lost_total",
        "tertulia_terminals_resent_total",
        "tertulia_writes_fenced_total",
        "tertulia_turns_running",
        "tertulia_turns_open",
        "tertulia_sockets",
        "tertulia_turn_queue_seconds",
        "tertulia_turn_first_token_seconds",
        "tertulia_turn_seconds",
    ):
        assert f"# TYPE {name.removesuffix('_total')}" in response.text or f"# TYPE {name}" in response.text


def sample(text: str, name: str) -> float:
    return float(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[1])


async def test_a_worker_of_its_own_tells_how_it_is_doing_and_a_server_without_one_what_waits(
    alone: Alone, folder: Path
) -> None:
    settings = await alone(user_requests_per_minute=100, sweep_seconds=0.2)
    with Instance("serve", folder, "--port", "0", "--no-worker", **settings) as server:
        async with User(server.url, "ann") as ann:
            waiting = [await ann.send("Hi", f"s{number}") for number in range(3)]

            async def counted() -> bool:
                return 'tertulia_turns_open{status="queued"} 3.0' in (await get(server, "/metrics")).text

            await eventually(counted)
            with Instance("worker", folder, "--port", "0", **settings) as worker:
                for sent in waiting:
                    assert (await ann.answered(sent))["status"] == "done"
                assert (await get(worker, "/healthz")).json() == {"status": "ok"}
                assert (await get(worker, "/readyz")).json()["status"] == "ready"
                text = (await get(worker, "/metrics")).text
                assert (await get(worker, "/api/messages")).status_code == 404
    assert sample(text, 'tertulia_turns_ended_total{status="done"}') == 3
    for name in ("turn_queue_seconds", "turn_first_token_seconds", "turn_seconds"):
        assert sample(text, f"tertulia_{name}_count") == 3
    assert sample(text, "tertulia_turn_queue_seconds_sum") > 0.3


async def test_the_gauge_of_sockets_goes_up_and_down(server: Instance, ann: User) -> None:
    before = sample((await get(server, "/metrics")).text, "tertulia_sockets")
    async with ann.socket():
        assert sample((await get(server, "/metrics")).text, "tertulia_sockets") == before + 1

    async def closed() -> bool:
        return sample((await get(server, "/metrics")).text, "tertulia_sockets") == before

    await eventually(closed)


async def test_the_interface_describes_itself(server: Instance) -> None:
    response = await get(server, "/docs/openapi.json")
    assert response.status_code == 200
    document = response.json()
    assert document["openapi"].startswith("3.")
    assert {
        ("/api/messages", "post"),
        ("/api/messages/{message_id}", "get"),
        ("/api/turns/{turn_id}/retry", "post"),
        ("/api/conversations/{conversation_id}", "get"),
        ("/api/conversations/{conversation_id}", "delete"),
        ("/api/conversations/{conversation_id}/abort", "post"),
        ("/api/notifications", "get"),
        ("/api/notifications/{notification_id}/read", "patch"),
        ("/healthz", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    } <= {(path, method) for path, methods in document["paths"].items() for method in methods}
    body = document["paths"]["/api/messages"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    while "$ref" in body:
        body = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    assert body["properties"].keys() == {"content", "session_id", "agent_id"}
    assert "202" in document["paths"]["/api/messages"]["post"]["responses"]


async def test_an_address_or_method_that_does_not_exist_is_answered_in_the_same_form(ann: User) -> None:
    missing = await ann.http.get("/api/nothing")
    wrong = await ann.http.delete("/api/messages")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "NOT_FOUND")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "METHOD_NOT_ALLOWED")


@pytest.fixture(scope="module")
async def own(folder: Path, settings: dict[str, Any]) -> AsyncGenerator[tuple[Instance, Path]]:
    """A server whose PostgreSQL and Valkey can be halted, and the directory of these."""
    directory = folder / "own"
    async with Embedded(directory) as services:
        await migrate(services.migration_url, "tertulia")
        urls = {"database_url": services.database_url, "redis_url": services.redis_url}
        with Instance(
            "serve", folder, "--port", "0", **settings | urls, lease_seconds=1, sweep_seconds=0.5
        ) as running:
            yield running, directory


@contextmanager
def halted(directory: Path, program: str) -> Generator[None]:
    """The program of this data directory with all its children, stopped as if the machine were overloaded."""
    first = next(
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if str(directory) in (command := process.info["cmdline"] or []) and Path(command[0]).name == program
    )
    family = [first, *first.children(recursive=True)]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("program", "state"),
    [
        ("valkey-server", {"status": "not ready", "postgresql": True, "redis": False}),
        ("postgres", {"status": "not ready", "postgresql": False, "redis": True}),
    ],
)
async def test_a_server_whose_backend_does_not_answer_is_alive_but_not_ready(
    own: tuple[Instance, Path], program: str, state: dict[str, Any]
) -> None:
    server, directory = own
    async with User(server.url, "ann") as ann:
        assert (await ann.ask("Before"))["status"] == "done"
        with halted(_data(directory, program), program):
            response = await get(server, "/readyz")
            assert response.status_code == 503
            assert {key: response.json()[key] for key in state} == state
            assert (await get(server, "/healthz")).status_code == 200

        async def ready() -> bool:
            return (await get(server, "/readyz")).status_code == 200

        assert await eventually(ready, 15)
        assert (await ann.ask("After"))["status"] == "done"


def _data(directory: Path, program: str) -> Path:
    return directory.resolve() / "postgres" if program == "postgres" else directory.resolve()


async def test_what_is_accepted_while_redis_is_away_is_answered_when_it_is_back(
    own: tuple[Instance, Path],
) -> None:
    server, directory = own
    async with User(server.url, "ann") as ann:
        with halted(_data(directory, "valkey-server"), "valkey-server"):
            sent = await ann.send('[[text {"said": "Sorry for the wait"}]]')
            assert (await ann.state(sent["message_id"]))["status"] in ("queued", "running")
        assert (await ann.answered(sent))["reply"]["content"] == "Sorry for the wait"


@pytest.fixture(scope="module")
async def apart(alone: Alone) -> dict[str, Any]:
    """The settings of servers and workers in processes of their own, two turns at a time."""
    return await alone(worker_slots=2, lease_seconds=2, sweep_seconds=0.5)


@pytest.fixture(scope="module")
def front(apart: dict[str, Any], folder: Path) -> Generator[Instance]:
    """A server that only accepts."""
    with Instance("serve", folder, "--no-worker", "--port", "0", **apart) as running:
        yield running


@pytest.mark.scenario("002", "Message enqueued for processing")
async def test_without_a_worker_a_message_waits_on_the_stream_and_with_one_it_is_answered(
    front: Instance, apart: dict[str, Any], someone: Someone, folder: Path
) -> None:
    ann = await someone("ann", at=front)
    sent = await ann.send('[[text {"said": "At last"}]]')
    async with Redis.from_url(apart["redis_url"], decode_responses=True) as valkey:

        async def waiting() -> list[Any]:
            return await valkey.xrange("tertulia:turns")

        [(_, fields)] = await eventually(waiting)
        assert fields["message_id"] == sent["message_id"]
        assert (await ann.state(sent["message_id"]))["status"] == "queued"
        with Instance("worker", folder, **apart):
            assert (await ann.answered(sent))["reply"]["content"] == "At last"

            async def gone() -> bool:
                return await valkey.xlen("tertulia:turns") == 0

            assert await eventually(gone)


@pytest.mark.scenario("002", "Worker consumes message from stream")
async def test_two_workers_share_the_work_and_one_that_is_told_to_stop_ends_what_it_began(
    front: Instance, apart: dict[str, Any], someone: Someone, folder: Path
) -> None:
    users = [
        await someone("ann", word("tenant"), at=front) for _ in range(12)
    ]  # no tenant may take all slots

    async def each(said: str, number: int) -> list[tuple[User, dict[str, Any]]]:
        return [(user, await user.send(said)) for user in users[:number]]

    async def answers(sent: list[tuple[User, dict[str, Any]]]) -> list[dict[str, Any]]:
        return await asyncio.gather(*(user.answered(message) for user, message in sent))

    with Instance("worker", folder, **apart) as one, Instance("worker", folder, **apart) as two:
        await answers(
            await each('[[text {"said": "first", "first": 1}]]', 4)
        )  # now both have loaded the model
        sent = await each('[[text {"said": "slow but sure", "first": 0.4}]]', 12)
        states = await answers(sent)
        names = {message["message_id"] for _, message in sent}
        shares = [
            {entry["message"] for entry in entries(worker, "turn ended")} & names for worker in (one, two)
        ]
        assert {state["status"] for state in states} == {"done"}
        assert shares[0] | shares[1] == names
        assert not shares[0] & shares[1]
        assert min(map(len, shares)) >= 3

        sent = await each('[[text {"said": "not cut short", "chunks": 8, "delay": 0.15}]]', 4)

        async def all_run() -> bool:
            return {(await user.state(m["message_id"]))["status"] for user, m in sent} == {"running"}

        await eventually(all_run)
        one.signal(signal.SIGTERM)
        states = await answers(sent)
        assert await asyncio.to_thread(one.ended) == 0
        assert {(s["status"], s["reply"]["content"], s["turns"][0]["attempt"]) for s in states} == {
            ("done", "not cut short", 1)
        }
        assert (await users[0].ask("Who is left?"))["status"] == "done"


async def test_what_does_not_end_in_time_is_handed_to_the_next_worker_and_answered_once(
    front: Instance, apart: dict[str, Any], someone: Someone, folder: Path
) -> None:
    ann = await someone("ann", at=front)
    hasty = apart | {"drain_seconds": 0.2}
    with Instance("worker", folder, **hasty) as first:
        sent = await ann.send('[[text {"said": "from the second", "chunks": 6, "delay": 0.4}]]')

        async def runs() -> bool:
            return (await ann.state(sent["message_id"]))["status"] == "running"

        await eventually(runs)
        assert await asyncio.to_thread(first.stop) in (0, -signal.SIGTERM), first.text
    with Instance("worker", folder, **apart):
        state = await ann.answered(sent)
    history = await ann.conversation(sent["conversation_id"])
    assert (state["reply"]["content"], state["turns"][0]["attempt"]) == ("from the second", 2)
    assert [message["role"] for message in history["messages"]] == ["user", "assistant"]


async def test_a_server_that_is_told_to_stop_lets_the_running_answer_end_first(
    apart: dict[str, Any], front: Instance, someone: Someone, folder: Path
) -> None:
    ann = await someone("ann", at=front)
    with Instance("serve", folder, "--port", "0", **apart) as both:
        sent = await ann.send(
            '[[text {"said": "I was not interrupted", "chunks": 8, "delay": 0.15}]]', word("s")
        )
        async with User(both.url, ann.name) as there, there.socket() as socket:

            async def runs() -> bool:
                return (await ann.state(sent["message_id"]))["status"] == "running"

            await eventually(runs)
            both.signal(signal.SIGTERM)
            with contextlib.suppress(Exception):
                await socket.quiet(20)
        assert await asyncio.to_thread(both.ended) in (0, -signal.SIGTERM), both.text
    state = await ann.state(sent["message_id"])
    assert (state["status"], state["reply"]["content"]) == ("done", "I was not interrupted")
    assert state["turns"][0]["attempt"] == 1


async def test_a_worker_without_a_database_says_what_it_needs(folder: Path) -> None:
    worker = Instance("worker", folder)
    with pytest.raises(RuntimeError, match="TERTULIA_DATABASE_URL and TERTULIA_REDIS_URL"):
        worker.start()
    assert "Traceback" not in worker.text
