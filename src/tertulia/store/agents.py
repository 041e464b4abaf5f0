"""The directory of agents: a tenant's own, and those that the server's file gives to every tenant."""

from typing import Any

import msgspec
from msgspec import structs

from tertulia.core.agents import AgentProfile, profile
from tertulia.core.errors import AgentExists, AgentNotFound
from tertulia.core.model import Owner
from tertulia.store.database import Database
from tertulia.store.keys import Key, once


class Directory:
    """`default` is the agent that every tenant has, unless it keeps another under that id."""

    def __init__(self, database: Database, default: AgentProfile) -> None:
        self._database = database
        self._default = default

    async def all(self, owner: Owner) -> list[AgentProfile]:
        """Who could answer this user, by id."""
        async with self._database.transaction(owner) as session:
            rows = await session.many("agents_known")
        known = {self._default.id: self._default}
        known |= {each.id: each for each in (profile(row["profile"]) for row in rows)}
        return sorted(known.values(), key=lambda each: each.id)

    async def get(self, owner: Owner, agent_id: str) -> AgentProfile:
        async with self._database.transaction(owner) as session:
            row = await session.one("agent_by_id", id=agent_id)
        if row is None and agent_id != self._default.id:
            raise AgentNotFound
        return self._default if row is None else profile(row["profile"])

    async def add(self, admin: Owner, agent: AgentProfile, key: Key | None) -> AgentProfile:
        """Add to the admin's own tenant."""
        async with self._database.transaction(admin, "admin") as session:

            async def make() -> AgentProfile:
                if await session.one("add_agent", tenant=admin.tenant, **structs.asdict(agent)) is None:
                    raise AgentExists
                return agent

            return await once(session, admin, key, AgentProfile, make)

    async def change(self, admin: Owner, agent: AgentProfile) -> AgentProfile:
        """Replace one of the admin's tenant; one of the file, or the default, gets one that goes before it."""
        async with self._database.transaction(admin, "admin") as session:
            given: dict[str, Any] = {"tenant": admin.tenant, **structs.asdict(agent)}
            if await session.one("change_agent", **given) is None:
                await session.one("add_agent", **given)
        return agent

    async def remove(self, admin: Owner, agent_id: str) -> None:
        """Take one out of the admin's tenant. What was said with it stays."""
        async with self._database.transaction(admin, "admin") as session:
            if await session.one("remove_agent", tenant=admin.tenant, id=agent_id) is None:
                raise AgentNotFound

    async def declare(self, agents: list[AgentProfile]) -> None:
        """Make these, and no others, the agents of every tenant."""
        rows = [{**structs.asdict(agent), "context_window": agent.window, "tenant": ""} for agent in agents]
        await self._database.many("declare_agents", agents=msgspec.json.encode(rows).decode())
