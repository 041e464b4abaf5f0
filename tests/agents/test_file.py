"""The file of agents: what it may say, and how its mistakes are told."""

from pathlib import Path
from typing import Any

import pytest

from tertulia.agents.file import read
from tertulia.core.agents import AgentProfile
from tertulia.settings import SettingsError
from tests.embedded.test_cli import sentence, tertulia
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.instance import SECRET, Instance
from tests.support.observe import asked

BEGINS = "It begins with `agents:` and lists them."


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "agents.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(folder: Path, content: str | bytes) -> str:
    """What is said of a file, after its name."""
    path = written(folder, content)
    with pytest.raises(SettingsError) as refused:
        read(path)
    sentence = str(refused.value)
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    return sentence.removeprefix(str(path))


def test_the_agents_of_the_file_are_as_it_says(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        # Who answers at our place.
        agents:
          - id: analyst
            display_name: 数据分析师
            kind: worker
            prompt: |
              Answer with numbers.
              Then stop.
            model: google_genai:gemini-2.5-pro
            window: 5
            context_tokens: 2000
            strategy: always
          - {id: plain, display_name: Plain}
        """,
    )
    assert read(path) == [
        AgentProfile(
            "analyst",
            "数据分析师",
            "worker",
            "Answer with numbers.\nThen stop.\n",
            "google_genai:gemini-2.5-pro",
            5,
            2000,
            "always",
        ),
        AgentProfile("plain", "Plain", "companion", "", None, None, None, "mentioned"),
    ]


def test_a_file_may_list_nobody(tmp_path: Path) -> None:
    assert read(written(tmp_path, "agents: []")) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", f" does not fit: Expected `object`, got `null`. {BEGINS}"),
        ("hello", f" does not fit: Expected `object`, got `str`. {BEGINS}"),
        ("agents:", f" does not fit: Expected `array`, got `null` - at `$.agents`. {BEGINS}"),
        ("agents: []\nnodes: []", f" does not fit: Object contains unknown field `nodes`. {BEGINS}"),
        (
            "agents: [{id: a}]",
            f" does not fit: Object missing required field `display_name` - at `$.agents[0]`. {BEGINS}",
        ),
        (
            "agents: [{id: a, display_name: A}, {id: b, display_name: B, promt: x}]",
            f" does not fit: Object contains unknown field `promt` - at `$.agents[1]`. {BEGINS}",
        ),
        (
            "agents: [{id: 7, display_name: A}]",
            f" does not fit: Expected `str`, got `int` - at `$.agents[0].id`. {BEGINS}",
        ),
        (
            "agents: [{id: a, display_name: A, kind: king}]",
            f" does not fit: Invalid enum value 'king' - at `$.agents[0].kind`. {BEGINS}",
        ),
        (
            "agents: [{id: a, display_name: A, window: many}]",
            f" does not fit: Expected `int | null`, got `str` - at `$.agents[0].window`. {BEGINS}",
        ),
        ("agents: [{id: a, display_name: A, window: 0}]", ": agents[0].window: 1 to 1,000 messages."),
        (
            "agents: [{id: a, display_name: A}, {id: b, display_name: B, window: 1001}]",
            ": agents[1].window: 1 to 1,000 messages.",
        ),
        (
            "agents: [{id: a, display_name: A, model: gemini}]",
            ": agents[0].model: written provider:model, such as google_genai:gemini-2.5-flash.",
        ),
        (
            "agents: [{id: 123e4567-e89b-12d3-a456-426614174000, display_name: A}]",
            ": agents[0].id: 1 to 64 letters, digits, `_`, `-` or `.`, beginning with a letter or digit; not a UUID.",
        ),
        (
            "agents: [{id: b, display_name: A}, {id: a, display_name: A}, {id: b, display_name: A}, "
            "{id: a, display_name: A}]",
            ": a, b: listed twice.",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    assert refusal(tmp_path, content) == said


@pytest.mark.parametrize(
    "content",
    [
        "agents: [",
        "agents:\n\t- id: a",
        "agents: *unknown",
        "agents: !!python/object/apply:os.system ['true']",
        "? [a]\n: b",
        b"agents: []\x00",
        "a: 1\n---\nb: 2",
    ],
)
def test_what_is_no_yaml_is_told_in_one_line(tmp_path: Path, content: str | bytes) -> None:
    assert refusal(tmp_path, content).startswith(" is not YAML: ")


@pytest.mark.parametrize(
    "content",
    [
        "agents: [{id: a, display_name: A, prompt: 2026-02-31}]",
        "agents: [{id: a, display_name: A, window: " + "9" * 5000 + "}]",
        "1: 2",
        "agents: " + "[" * 3000 + "]" * 3000,
        "agents: &again [*again]",
        "agents: [{id: a, display_name: A, prompt: 2026-02-03}]",
        "agents: [{id: a, display_name: A, window: .nan}]",
        "agents: [{id: a, display_name: A, prompt: !!binary aGk=}]",
    ],
)
def test_what_yaml_can_say_and_an_agent_cannot_be_is_refused_too(tmp_path: Path, content: str) -> None:
    assert refusal(tmp_path, content).startswith((" does not fit: ", " is not YAML: "))


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yaml cannot be read: .*No such file"):
        read(tmp_path / "nowhere.yaml")
    with pytest.raises(SettingsError, match=r"cannot be read: .*Is a directory"):
        read(tmp_path)
    assert refusal(tmp_path, b"agents: [\xff]").startswith(" cannot be read: 'utf-8' codec can't decode")
    assert refusal(tmp_path, "#" * 1_048_577) == ": larger than a file of agents may be."


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "agents.yaml cannot be read: [Errno 2] No such file or directory"),
        ("agents: [", "agents.yaml is not YAML: while parsing a flow node"),
        (
            "agents: [{id: a, display_name: A, promt: x}]",
            "agents.yaml does not fit: Object contains unknown field `promt` - at `$.agents[0]`.",
        ),
        (
            "agents: [{id: a, display_name: A}, {id: a, display_name: B}]",
            "agents.yaml: a: listed twice.",
        ),
        (
            "agents: [{id: a, display_name: A, window: 0}]",
            "agents.yaml: agents[0].window: 1 to 1,000 messages.",
        ),
    ],
)
def test_a_server_with_a_wrong_file_says_so_in_one_sentence_before_it_starts_anything(
    tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "agents.yaml"
    if content is not None:
        path.write_text(content, "utf-8")
    data = tmp_path / "data"
    assert said in sentence(tertulia("serve", "--port", "0", "--data-dir", data, "--agents", path))
    assert not data.exists()


FIRST = """
agents:
  - {id: analyst, display_name: Analyst, prompt: Answer with numbers.}
  - {id: poet, display_name: Poet, prompt: Answer in rhymes.}
  - {id: assistant, display_name: Owl, prompt: Whisper.}
"""
SECOND = "agents: [{id: poet, display_name: Bard, prompt: Sing.}]"


async def known(user: User) -> dict[str, str]:
    """The agents that a user may ask, with their names."""
    agents: list[dict[str, Any]] = (await user.http.get("/api/agents")).json()["agents"]
    return {agent["id"]: agent["display_name"] for agent in agents}


async def shown(user: User, gemini: ScriptedGemini, agent: str | None, question: str) -> str:
    """The prompt of whoever answers."""
    body = {"content": question} | ({"agent_id": agent} if agent else {})
    response = await user.http.post("/api/messages", json=body)
    assert response.status_code == 202, response.text
    assert (await user.answered(response.json()))["status"] == "done"
    return asked(gemini, question).system.partition("\n")[0]


async def test_agents_of_the_file_are_every_tenants_until_it_is_changed_and_a_tenants_own_goes_before(
    folder: Path, gemini: ScriptedGemini
) -> None:
    path = written(folder, FIRST)
    given = ("--port", "0", "--data-dir", str(folder / "own"), "--agents", str(path))
    settings = {"secret": SECRET, "google_api_key": "test-key", "model_base_url": gemini.url}
    with Instance("serve", folder, *given, **settings) as server:
        async with User(server.url, "ada", "one", role="admin") as ada, User(server.url, "bea", "two") as bea:
            both = {"analyst": "Analyst", "assistant": "Owl", "poet": "Poet"}
            assert (await known(ada), await known(bea)) == (both, both)
            refused = await ada.http.delete("/api/agents/poet")
            assert refused.json()["error"]["code"] == "AGENT_NOT_FOUND"
            own = {"id": "poet", "display_name": "Our poet", "prompt": "Answer in prose."}
            assert (await ada.http.post("/api/agents", json=own)).status_code == 201
            assert (await known(ada), await known(bea)) == (both | {"poet": "Our poet"}, both)
            assert await shown(ada, gemini, "poet", "File 1") == "Answer in prose."
            assert await shown(bea, gemini, "poet", "File 2") == "Answer in rhymes."
            assert await shown(bea, gemini, None, "File 3") == "Whisper."
    written(folder, SECOND)
    with Instance("serve", folder, *given, **settings) as server:
        async with User(server.url, "ada", "one", role="admin") as ada, User(server.url, "bea", "two") as bea:
            assert await known(ada) == {"assistant": "Assistant", "poet": "Our poet"}
            assert await known(bea) == {"assistant": "Assistant", "poet": "Bard"}
            gone = await bea.http.post("/api/messages", json={"content": "Hi", "agent_id": "analyst"})
            assert (gone.status_code, gone.json()["error"]["code"]) == (404, "AGENT_NOT_FOUND")
            assert await shown(bea, gemini, "poet", "File 4") == "Sing."
            assert (await ada.http.delete("/api/agents/poet")).status_code == 200
            assert await shown(ada, gemini, "poet", "File 5") == "Sing."
