"""The file of agents that an operator gives to a server: YAML, read strictly, with its mistakes named."""

from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from tertulia.core.agents import AgentProfile, checked
from tertulia.core.errors import InvalidRequest
from tertulia.settings import SettingsError

_BYTES = 1_048_576


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    agents: list[AgentProfile]


def read(path: Path) -> list[AgentProfile]:
    """The agents that the file describes; raises `SettingsError` with a sentence that says what to mend."""
    try:
        text = path.read_text("utf-8")
        if len(text) > _BYTES:
            raise SettingsError(f"{path}: larger than a file of agents may be.")
        found: Any = yaml.safe_load(text)
        agents = msgspec.convert(found, _File).agents
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.") from error
    except (msgspec.ValidationError, RecursionError) as error:
        raise SettingsError(
            f"{path} does not fit: {error}. It begins with `agents:` and lists them."
        ) from error
    except (yaml.YAMLError, ValueError) as error:  # a date or number that is none is a ValueError
        raise SettingsError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    return _checked(path, agents)


def _checked(path: Path, agents: list[AgentProfile]) -> list[AgentProfile]:
    for number, agent in enumerate(agents):
        try:
            checked(agent)
        except InvalidRequest as error:
            raise SettingsError(f"{path}: agents[{number}].{error}") from error
    twice = {agent.id for agent in agents if sum(other.id == agent.id for other in agents) > 1}
    if twice:
        raise SettingsError(f"{path}: {', '.join(sorted(twice))}: listed twice.")
    return agents
