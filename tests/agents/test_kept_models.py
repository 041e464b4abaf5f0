"""Models are kept for whom they answer next, but not more of them than there is room for."""

import weakref

from tertulia.agents.loop import LocalAgent
from tertulia.agents.registry import Agents
from tertulia.core.agents import AgentProfile
from tertulia.settings import Settings
from tests.support.turns import turn


async def asked(agents: Agents, model: int, name: str = "one") -> LocalAgent:
    """The agent of that name that speaks by the model of that number."""
    profile = AgentProfile(name, name, model=f"demo:{model}")
    return await agents.of(turn(agent_id=name, profile=profile))


async def test_a_33rd_model_takes_the_place_of_the_oldest_whose_agents_are_made_again_when_they_are_asked() -> (
    None
):
    agents = Agents(Settings(model="demo:"), [])
    first = [await asked(agents, 1, name) for name in ("one", "two")]
    others = [await asked(agents, number) for number in range(2, 33)]
    assert [await asked(agents, 1, name) for name in ("one", "two")] == first
    await asked(agents, 33)
    assert [await asked(agents, number) for number in range(2, 33)] == others
    again = [await asked(agents, 1, name) for name in ("one", "two")]
    assert [agent.model_name for agent in again] == ["demo:1", "demo:1"]
    assert not set(again) & set(first)


async def test_of_a_hundred_models_32_are_kept_in_memory() -> None:
    agents = Agents(Settings(model="demo:"), [])
    made = [weakref.ref(await asked(agents, number)) for number in range(100)]
    assert [number for number, agent in enumerate(made) if agent()] == list(range(68, 100))


async def test_a_model_that_another_agent_is_made_for_is_not_the_oldest_any_more() -> None:
    agents = Agents(Settings(model="demo:"), [])
    first, second = await asked(agents, 1), await asked(agents, 2)
    for number in range(3, 33):
        await asked(agents, number)
    await asked(agents, 1, "two")
    await asked(agents, 33)
    assert await asked(agents, 1) is first
    assert await asked(agents, 2) is not second
