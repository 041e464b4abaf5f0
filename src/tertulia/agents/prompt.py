"""What the model reads before the conversation, and the conversation in LangChain's words."""

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from tertulia.core.context import as_prompt, summary
from tertulia.core.model import ContextMessage, Role
from tertulia.core.turns import Turn

if TYPE_CHECKING:
    from langchain_core.messages import AIMessageChunk, BaseMessage


def system_prompt(base: str, turn: Turn, history: list[ContextMessage]) -> str:
    """The agent's own prompt, for whom it answers, and a summary once there is data to refer to."""
    lines = [
        base,
        f"You are talking with the user {turn.owner.user!r} of the organisation {turn.owner.tenant!r}.",
    ]
    if any(message.structured_data is not UNSET for message in history):
        lines += ["So far in this conversation:", summary(history)]
    return "\n".join(lines)


def messages(base: str, turn: Turn, history: list[ContextMessage]) -> "list[BaseMessage]":
    """System prompt, history and the message to answer."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    said: list[BaseMessage] = [SystemMessage(system_prompt(base, turn, history))]
    for message in history:
        kind = AIMessage if message.role is Role.ASSISTANT else HumanMessage
        said.append(kind(_text(message)))
    said.append(HumanMessage(turn.content))
    return said


def _text(message: ContextMessage) -> str:
    text = message.content if isinstance(message.content, str) else str(message.content)
    if message.structured_data is UNSET:
        return text
    return f"{text}\n\n[shown with this answer]\n{as_prompt(message.structured_data)}"


_SIGNATURES = "__gemini_function_call_thought_signatures__"  # where LangChain keeps what Gemini 3 wants back


def signature(chunk: "AIMessageChunk", call_id: str) -> str | None:
    """What the model wants to be shown again with this call, if anything."""
    return chunk.additional_kwargs.get(_SIGNATURES, {}).get(call_id)


def exchange(calls: list[dict[str, Any]], results: list[str]) -> "list[BaseMessage]":
    """What the model asked for at once and what came of it, as it is shown to the model when it goes on."""
    from langchain_core.messages import AIMessage, ToolMessage

    asked: Any = [
        {"name": call["name"], "args": call["arguments"], "id": call["id"], "type": "tool_call"}
        for call in calls
    ]
    signed = {call["id"]: call["signature"] for call in calls if call.get("signature")}
    message = AIMessage("", tool_calls=asked, additional_kwargs={_SIGNATURES: signed} if signed else {})
    answers = (
        ToolMessage(result, tool_call_id=call["id"]) for call, result in zip(calls, results, strict=True)
    )
    return [message, *answers]
