"""Which agents there are, and their models, made when first needed."""

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from tertulia import heap
from tertulia.agents.loop import LocalAgent
from tertulia.agents.models import make_model
from tertulia.core.agents import AgentProfile
from tertulia.core.errors import AgentGone
from tertulia.core.turns import Turn
from tertulia.settings import Settings, default_agent
from tertulia.tools.port import Tool

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

_REMEMBERED = 200
_MODELS = 32  # each takes some megabytes


class Agents:
    """Agents by their profile. The default one, whom the settings describe, answers what names nobody else."""

    def __init__(self, settings: Settings, tools: list[Tool]) -> None:
        self._settings = settings
        self._tools = tools
        self._default = default_agent(settings)
        self._made: OrderedDict[AgentProfile, LocalAgent] = OrderedDict()
        self._models: OrderedDict[str, BaseChatModel] = OrderedDict()
        self._making = asyncio.Lock()

    async def of(self, turn: Turn) -> LocalAgent:
        """Who answers this turn; a model's first use imports its library in a thread, so nobody else waits for it."""
        profile = turn.profile or self._default
        if turn.agent_id != profile.id:
            raise AgentGone
        if (agent := self._made.get(profile)) is None:
            async with self._making:
                agent = self._made.get(profile) or await asyncio.to_thread(self._make, profile)
                self._remember(profile, agent)
        return agent

    def _remember(self, profile: AgentProfile, agent: LocalAgent) -> None:
        self._made[profile] = agent
        if len(self._made) > _REMEMBERED:
            self._made.popitem(last=False)
        heap.settle()

    def _make(self, profile: AgentProfile) -> LocalAgent:
        settings = self._settings
        name = profile.model or settings.model_name
        return LocalAgent(
            self._model(name),
            name,
            profile.prompt or settings.agent_prompt,
            self._tools,
            window=profile.window or settings.context_window,
            tokens=profile.context_tokens or settings.context_tokens,
            zone=settings.timezone,
            timeout=settings.model_timeout,
            steps=settings.agent_steps,
            longest=settings.answer_chars,
        )

    def _forget(self, model: "BaseChatModel") -> None:
        """The agents that speak by it are made again when they are asked next."""
        for profile in [profile for profile, agent in self._made.items() if agent.speaks_by(model)]:
            del self._made[profile]

    def _model(self, name: str) -> "BaseChatModel":
        settings = self._settings
        if name in self._models:
            self._models.move_to_end(name)
        else:
            key = settings.google_api_key
            same_provider = name.partition(":")[0] == settings.model_name.partition(":")[0]
            self._models[name] = make_model(
                name,
                base_url=settings.model_base_url if same_provider else None,
                google_api_key=key.get_secret_value() if key else None,
                timeout=settings.model_timeout,
            )
            if len(self._models) > _MODELS:
                self._forget(self._models.popitem(last=False)[1])
        return self._models[name]
