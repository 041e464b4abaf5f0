"""What a tool is, whoever provides it."""

from typing import Any, Protocol

from msgspec import Struct

from tertulia.core.turns import Turn


class Outcome(Struct, frozen=True):
    """What came of a call: text for the model, and what it adds to the answer."""

    text: str
    is_error: bool = False
    structured_data: dict[str, Any] | None = None
    action: dict[str, Any] | None = None


class Tool(Protocol):
    """Something an agent can do.

    `repeatable` says whether a call that may have happened can safely be made again; one that is not is started at
    most once per call id, and after a crash in its middle its outcome is `unknown`.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> dict[str, Any]: ...

    @property
    def repeatable(self) -> bool: ...

    async def run(self, turn: Turn, call_id: str, arguments: dict[str, Any]) -> Outcome:
        """Do it. A refusal or failure that the model should know of is an outcome, not an exception."""
        ...
