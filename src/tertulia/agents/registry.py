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


class Agents:
    """Agents by their profile. The default one, whom the settings describe, answers what names nobody else."""

    def __init__(self, settings: Settings, tools: list[Tool]) -> None:
        self._settings = settings
        self._tools = tools
        self._default = default_agent(settings)
        self._made: OrderedDict[AgentProfile, LocalAgent] = OrderedDict()
        self._models: dict[str, BaseChatModel] = {}
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

    def _model(self, name: str) -> "BaseChatModel":
        settings = self._settings
        if name not in self._models:
            key = settings.google_api_key
            same_provider = name.partition(":")[0] == settings.model_name.partition(":")[0]
            self._models[name] = make_model(
                name,
                base_url=settings.model_base_url if same_provider else None,
                google_api_key=key.get_secret_value() if key else None,
                timeout=settings.model_timeout,
            )
        return self._models[name]
