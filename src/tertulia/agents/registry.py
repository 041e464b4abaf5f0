"""Which agents there are, and their models, made when first needed."""

import asyncio

from tertulia import heap
from tertulia.agents.loop import LocalAgent
from tertulia.agents.models import make_model
from tertulia.core.errors import AgentNotFound
from tertulia.settings import Settings
from tertulia.tools.port import Tool


class Agents:
    """The tenant agent: who answers what is not addressed to anyone else."""

    def __init__(self, settings: Settings, tools: list[Tool]) -> None:
        self._settings = settings
        self._tools = tools
        self._made: LocalAgent | None = None
        self._making = asyncio.Lock()

    async def get(self, agent_id: str) -> LocalAgent:
        """The agent; its first use imports the model's library in a thread, so nobody else waits for it."""
        if agent_id != self._settings.agent_id:
            raise AgentNotFound
        if self._made is None:
            async with self._making:
                self._made = self._made or await asyncio.to_thread(self._make)
                heap.settle()
        return self._made

    def _make(self) -> LocalAgent:
        settings = self._settings
        key = settings.google_api_key
        model = make_model(
            settings.model_name,
            base_url=settings.model_base_url,
            google_api_key=key.get_secret_value() if key else None,
            timeout=settings.model_timeout,
        )
        return LocalAgent(
            model,
            settings.model_name,
            settings.agent_prompt,
            self._tools,
            timeout=settings.model_timeout,
            steps=settings.agent_steps,
            longest=settings.answer_chars,
        )
