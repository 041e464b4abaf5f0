"""What users install: the wheel, with nothing but the runtime lock, serves."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def uv(*arguments: str | Path) -> None:
    done = subprocess.run([ROOT / "scripts" / "uv", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs of an environment that has only what users get."""
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder)
    uv("venv", "--python", sys.executable, folder / "env")
    into = ("--python", folder / "env")
    uv("pip", "sync", "--require-hashes", *into, ROOT / "requirements.lock")
    uv("pip", "install", "--no-deps", *into, next(folder.glob("*.whl")))
    return folder / "env" / "bin"


def test_the_wheel_serves_answers_a_message_and_ends_when_told(installed: Path, tmp_path: Path):
    command = [installed / "tertulia", "serve", "--port", "0", "--data-dir", tmp_path / "data"]
    ours = ("TERTULIA_", "GOOGLE_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=clean) as server:
        try:
            address = listening(server)
            with urllib.request.urlopen(f"{address}/healthz", timeout=10) as answer:
                assert answer.status == 200
            reply = answer_to("Which way to the sea?", address, token(installed, tmp_path / "data"))
            assert "You said: “Which way to the sea?”" in reply
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)
    assert server.returncode == 0


def listening(server: "subprocess.Popen[str]") -> str:
    """The address that the server announces."""
    assert server.stderr is not None
    said: list[str] = []
    for line in server.stderr:
        said.append(line)
        if found := re.search(r"listening on (http://\S+)", line):
            return found[1]
    raise AssertionError("".join(said))


def token(installed: Path, data_dir: Path) -> str:
    command = [installed / "tertulia", "token", "--user", "ada", "--data-dir", data_dir]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def asked(url: str, token: str, body: "dict[str, str] | None" = None) -> dict[str, Any]:
    """What the server answers to a request; one with a body is a POST."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def answer_to(text: str, address: str, token: str) -> str:
    """The reply to a message, once there is one."""
    sent = asked(f"{address}/api/messages", token, {"content": text})
    deadline = time.monotonic() + 30
    while (state := asked(f"{address}/api/messages/{sent['message_id']}", token))["status"] != "done":
        assert state["status"] in ("queued", "running"), state
        assert time.monotonic() < deadline, state
        time.sleep(0.05)
    return state["reply"]["content"]
