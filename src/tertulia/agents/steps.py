"""The tool calls of one turn: each is on record before it runs, and its outcome before the model sees it."""

from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tertulia.agents import prompt
from tertulia.agents.port import Output
from tertulia.core.model import ContentType, ContextMessage, ToolUse
from tertulia.core.text import cleaned
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
        self._round = 0
        self._ids: set[str] = set()
        self.structured: dict[str, Any] | None = None
        self.actions: list[dict[str, Any]] = []
        self.used: list[ToolUse] = []

    async def resume(self, recorded: list[ContextMessage]) -> "list[BaseMessage]":
        """What earlier attempts did, for the model. A call without a result is finished now, or is `unknown`."""
        calls = [_content(step) for step in recorded if step.content_type is ContentType.TOOL_CALL]
        found = [_content(step) for step in recorded if step.content_type is ContentType.TOOL_RESULT]
        results = {result["id"]: result for result in found}
        shown: list[BaseMessage] = []
        for number, together in groupby(calls, key=lambda call: call["round"]):
            self._round = number + 1
            used = [await self._known(call, results) for call in together]
            shown += prompt.exchange(used)
        return shown

    async def run(self, calls: list[dict[str, Any]]) -> "list[BaseMessage]":
        """Run what the model asked for, in order; yields the calls and results as the model sees them.

        A call is `{id, name, arguments, signature}`; arguments that are no object are answered with an error.
        """
        used: list[ToolUse] = []
        for given in calls:
            well_formed = isinstance(given["arguments"], dict)
            arguments: dict[str, Any] = given["arguments"] if well_formed else {}
            name = given["id"] if given["id"] not in self._ids else str(uuid4())
            call: dict[str, Any] = {**given, "id": name, "round": self._round, "arguments": arguments}
            self._ids.add(name)
            await self._output.tool_called(call)
            used.append(await self._record(call, await self._outcome(call, well_formed=well_formed)))
        self._round += 1
        return prompt.exchange(used)

    async def _known(self, call: dict[str, Any], results: dict[str, dict[str, Any]]) -> ToolUse:
        self._ids.add(call["id"])
        result = results.get(call["id"])
        if result is None:
            return await self._complete(call)
        self._add(result.get("structured"), result.get("action"))
        return self._use(call, result["result"])

    async def _complete(self, call: dict[str, Any]) -> ToolUse:
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

    async def _record(self, call: dict[str, Any], outcome: Outcome) -> ToolUse:
        text = cleaned(outcome.text[:_LONGEST_RESULT])
        self._add(outcome.structured_data, outcome.action)
        extra = {"structured": outcome.structured_data, "action": outcome.action}
        await self._output.tool_returned(call["id"], call["name"], text, outcome.is_error, extra)
        return self._use(call, text)

    def _use(self, call: dict[str, Any], result: str) -> ToolUse:
        self.used.append(ToolUse(call, result))
        return self.used[-1]

    def _add(self, structured: dict[str, Any] | None, action: dict[str, Any] | None) -> None:
        self.structured = structured or self.structured
        if action:
            self.actions.append(action)


def _content(step: ContextMessage) -> dict[str, Any]:
    return step.content if isinstance(step.content, dict) else {}
