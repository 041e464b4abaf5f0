"""The tool calls of one turn: each is on record before it runs, and its outcome before the model sees it."""

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tertulia.agents import prompt
from tertulia.agents.port import Output
from tertulia.core.model import ContentType, ContextMessage
from tertulia.core.turns import Turn
from tertulia.tools.port import Outcome, Tool

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

_UNKNOWN = (
    "The outcome of this call is unknown: the server stopped while it ran. It may have happened."
    " Do not repeat it; tell the person."
)
_LONGEST_RESULT = 50_000


class Steps:
    """Runs calls and remembers what they add to the answer."""

    def __init__(self, turn: Turn, tools: dict[str, Tool], output: Output) -> None:
        self._turn = turn
        self._tools = tools
        self._output = output
        self.structured: dict[str, Any] | None = None
        self.actions: list[dict[str, Any]] = []

    async def resume(self, recorded: list[ContextMessage]) -> "list[BaseMessage]":
        """What earlier attempts did, for the model. A call without a result is finished now, or is `unknown`."""
        calls = [_content(step) for step in recorded if step.content_type is ContentType.TOOL_CALL]
        results = {
            _content(step)["id"]: _content(step)
            for step in recorded
            if step.content_type is ContentType.TOOL_RESULT
        }
        shown: list[BaseMessage] = []
        for call in calls:
            result = results.get(call["id"])
            if result is None:
                result = await self._complete(call)
            else:
                self._add(result.get("structured"), result.get("action"))
            shown += prompt.call_and_result(call, result)
        return shown

    async def run(self, calls: list[dict[str, Any]]) -> "list[BaseMessage]":
        """Run what the model asked for, in order; yields the calls and results as the model sees them."""
        shown: list[BaseMessage] = []
        for call in calls:
            named = {
                "id": str(call["id"] or uuid4()),
                "name": str(call["name"]),
                "arguments": call["args"] or {},
            }
            await self._output.tool_called(named["id"], named["name"], named["arguments"])
            outcome = await self._outcome(named, well_formed=isinstance(call["args"], dict))
            shown += prompt.call_and_result(named, await self._record(named, outcome))
        return shown

    async def _complete(self, call: dict[str, Any]) -> dict[str, Any]:
        tool = self._tools.get(call["name"])
        if tool is not None and not tool.repeatable:
            return await self._record(call, Outcome(_UNKNOWN, is_error=True))
        return await self._record(call, await self._outcome(call, well_formed=True))

    async def _outcome(self, call: dict[str, Any], *, well_formed: bool) -> Outcome:
        tool = self._tools.get(call["name"])
        if tool is None:
            return Outcome(f"There is no tool {call['name'][:100]!r}.", is_error=True)
        if not well_formed:
            return Outcome("The arguments are not a JSON object; call again with them right.", is_error=True)
        return await tool.run(self._turn, call["id"], call["arguments"])

    async def _record(self, call: dict[str, Any], outcome: Outcome) -> dict[str, Any]:
        text = outcome.text[:_LONGEST_RESULT]
        extra = {"structured": outcome.structured_data, "action": outcome.action}
        self._add(outcome.structured_data, outcome.action)
        await self._output.tool_returned(call["id"], call["name"], text, outcome.is_error, extra)
        return {"id": call["id"], "result": text}

    def _add(self, structured: dict[str, Any] | None, action: dict[str, Any] | None) -> None:
        self.structured = structured or self.structured
        if action:
            self.actions.append(action)


def _content(step: ContextMessage) -> dict[str, Any]:
    return step.content if isinstance(step.content, dict) else {}
