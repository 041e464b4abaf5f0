"""Who answers, as the worker sees it."""

from typing import Any, Protocol

from tertulia.core.model import ContextMessage
from tertulia.core.turns import Answer, Turn


class Output(Protocol):
    """Where an agent's words and steps go while it works."""

    def note(self, **facts: object) -> None:
        """For the record of the turn: what the model is shown, what it used."""
        ...

    async def text(self, delta: str) -> None:
        """Some more of the answer."""
        ...

    async def tool_called(self, call: dict[str, Any]) -> None:
        """A tool is about to be run, as `{id, name, arguments, …}`; once this returns, that is on record."""
        ...

    async def tool_returned(
        self, call_id: str, name: str, result: str, is_error: bool, extra: dict[str, Any]
    ) -> None:
        """What came of it; once this returns, that is on record."""
        ...


class Agent(Protocol):
    """Answers a turn from what it is shown. Raises a `TurnError` when it cannot."""

    async def answer(
        self, turn: Turn, history: list[ContextMessage], steps: list[ContextMessage], output: Output
    ) -> Answer: ...
