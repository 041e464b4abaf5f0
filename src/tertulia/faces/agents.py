"""`/api/agents`: who can answer. Everybody may look; admins make and change them."""

from typing import Annotated, Any

from litestar import delete, get, patch, post
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from tertulia.core import agents, errors
from tertulia.core.agents import AgentProfile, Kind, Strategy
from tertulia.faces import body as reading
from tertulia.faces.body import IdempotencyKey
from tertulia.faces.gate import Signed
from tertulia.faces.openapi import BODY, refuses, takes
from tertulia.store.agents import Directory


class AgentList(Struct, frozen=True):
    """The agents of your organisation, by id."""

    agents: list[AgentProfile]


class ChangeAgent(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be different; what is left out stays."""

    display_name: str | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    model: Annotated[str | None, Meta(description="provider:model; null: the server's own")] | UnsetType = (
        UNSET
    )
    window: int | UnsetType | None = UNSET
    context_tokens: int | UnsetType | None = UNSET
    strategy: Strategy | UnsetType = UNSET


class Removed(Struct, frozen=True):
    status: str = "removed"


@get("/api/agents", responses=refuses(), tags=["agents"], summary="List the agents")
async def list_agents(request: Signed) -> AgentList:
    """Who can answer you: the organisation's own agents, the server's, and the default one."""
    directory: Directory = request.app.state.directory
    return AgentList(await directory.all(request.user.owner))


@get(
    "/api/agents/{agent_id:str}",
    responses=refuses(errors.AgentNotFound),
    tags=["agents"],
    summary="Look at an agent",
)
async def read_agent(request: Signed, agent_id: str) -> AgentProfile:
    """One agent, as it is set up."""
    directory: Directory = request.app.state.directory
    return await directory.get(request.user.owner, _id(agent_id))


@post(
    "/api/agents",
    operation_class=takes(AgentProfile, {"id": "analyst", "display_name": "数据分析师", "window": 20}),
    responses=refuses(errors.Forbidden, errors.AgentExists, errors.IdempotencyConflict, *BODY),
    tags=["agents"],
    summary="Make an agent (admins)",
)
async def add_agent(request: Signed, body: bytes, idempotency_key: IdempotencyKey = None) -> AgentProfile:
    """Add an agent to your organisation. `window` is how many messages of a conversation it sees."""
    _admins_only(request)
    directory: Directory = request.app.state.directory
    agent = agents.checked(reading.decode(body, AgentProfile))
    key = reading.key("POST /api/agents", idempotency_key, body)
    return await directory.add(request.user.owner, agent, key)


@patch(
    "/api/agents/{agent_id:str}",
    operation_class=takes(ChangeAgent, {"prompt": "Answer in one sentence."}),
    responses=refuses(errors.Forbidden, errors.AgentNotFound, *BODY),
    tags=["agents"],
    summary="Change an agent (admins)",
)
async def change_agent(request: Signed, agent_id: str, body: bytes) -> AgentProfile:
    """Answers that begin from now on are given by the changed agent."""
    _admins_only(request)
    directory: Directory = request.app.state.directory
    change: dict[str, Any] = {
        name: value
        for name, value in structs.asdict(reading.decode(body, ChangeAgent)).items()
        if value is not UNSET
    }
    owner = request.user.owner
    agent = agents.checked(structs.replace(await directory.get(owner, _id(agent_id)), **change))
    return await directory.change(owner, agent)


@delete(
    "/api/agents/{agent_id:str}",
    status_code=200,
    responses=refuses(errors.Forbidden, errors.AgentNotFound),
    tags=["agents"],
    summary="Remove an agent (admins)",
)
async def remove_agent(request: Signed, agent_id: str) -> Removed:
    """Take an agent out of your organisation; its conversations stay readable."""
    _admins_only(request)
    directory: Directory = request.app.state.directory
    await directory.remove(request.user.owner, _id(agent_id))
    return Removed()


def _admins_only(request: Signed) -> None:
    """The database refuses others too; here they are told so."""
    if request.user.role != "admin":
        raise errors.Forbidden("Only admins may make and change agents.")


def _id(text: str) -> str:
    if not agents.is_agent_id(text):
        raise errors.AgentNotFound
    return text


ROUTES = [list_agents, read_agent, add_agent, change_agent, remove_agent]
