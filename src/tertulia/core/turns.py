"""How a turn ends: the rows and the events that every end has, whatever led to it."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from tertulia.core.agents import AgentProfile
from tertulia.core.errors import GenerationAborted, TertuliaError
from tertulia.core.events import (
    Data,
    Event,
    Failed,
    Failure,
    MessageComplete,
    Push,
    Reply,
    TurnEnd,
    UserMessage,
    encode,
)
from tertulia.core.model import Owner, ToolUse, TurnStatus


class Turn(Struct, frozen=True):
    """A turn that a worker has taken: an agent's obligation to answer one message, in one attempt."""

    id: UUID
    owner: Owner
    conversation: UUID
    handle: str
    message: UUID
    content: str
    said_at: datetime
    queued_at: datetime
    trigger_seq: int
    agent_id: str
    attempt: int
    tries: int
    epoch: int
    context_until: int
    context_tail: int
    card_seq: int
    aborting: bool
    partial: str | None
    timezone: str | None
    profile: AgentProfile | None

    def event(self, data: Data, at: datetime) -> Event:
        return Event(
            type=data.type,
            conversation_id=self.conversation,
            turn_id=self.id,
            attempt=self.attempt,
            agent_id=self.agent_id,
            timestamp=at,
            data=data,
        )


def asked(conversation: UUID, message: UUID, turn: UUID, content: str, at: datetime) -> Event:
    """The message for all who watch the session, such as the user's other devices."""
    data = UserMessage(message_id=message, message=content)
    return Event(data.type, conversation, at, data, turn)


def asked_once(message: UUID) -> str:
    """The name under which that event is appended, whoever does it first."""
    return f"asked:{message}"


class Answer(Struct, frozen=True):
    """What an agent came to say, with what it did on the way."""

    text: str
    structured_data: dict[str, Any] | None = None
    actions: tuple[dict[str, Any], ...] = ()
    usage: dict[str, int] | None = None
    model: str | None = None
    tools: tuple[ToolUse, ...] = ()


class Ending(Struct, frozen=True):
    """Everything that is written when a turn ends, in one transaction. `partial` is what a failed turn had said."""

    status: TurnStatus
    answer: Answer | None = None
    reply: UUID | None = None
    error: TertuliaError | None = None
    partial: str | None = None


def aborted(said: str, reply: UUID) -> Ending:
    """The end of a turn that was stopped: what was said until then is kept."""
    kept = said.strip() != ""
    return Ending(
        TurnStatus.ABORTED,
        Answer(said) if kept else None,
        reply if kept else None,
        GenerationAborted(),
    )


class Terminal(Struct, frozen=True):
    """The last events of a turn, kept with it until they are known to be in the event logs."""

    session: list[msgspec.Raw]
    user: list[msgspec.Raw]


def terminal(turn: Turn, ending: Ending, http_status: int, at: datetime) -> Terminal:
    """The events of this end, for those who watch the session and for the user wherever they are."""
    session = _last(ending.status, turn.message, ending.reply, ending.answer, ending.error, http_status)
    return Terminal(
        [msgspec.Raw(encode(turn.event(data, at))) for data in session],
        [msgspec.Raw(encode(_push(turn, ending, at)))],
    )


class Ended(Struct, frozen=True):
    """A turn that has ended, as the database knows it."""

    turn: UUID
    conversation: UUID
    message: UUID
    agent_id: str
    attempt: int
    status: TurnStatus
    reply: UUID | None = None
    text: str = ""
    structured_data: dict[str, Any] | None = None
    actions: tuple[dict[str, Any], ...] = ()
    usage: dict[str, int] | None = None
    error: TertuliaError | None = None


def told_again(ended: Ended, http_status: int, at: datetime) -> list[Event]:
    """The last events of a turn, for one who did not hear them."""
    datas = _last(ended.status, ended.message, ended.reply, ended, ended.error, http_status)
    return [
        Event(data.type, ended.conversation, at, data, ended.turn, ended.attempt, ended.agent_id)
        for data in datas
    ]


def _last(
    status: TurnStatus, message: UUID, reply: UUID | None, answer: "Answer | Ended | None",
    error: TertuliaError | None, http_status: int,
) -> list[Data]:  # fmt: skip
    """What every end is told by: the whole answer or the error, and that it is the end."""
    told: list[Data] = []
    if answer and reply and status is TurnStatus.DONE:
        told.append(
            MessageComplete(
                message_id=reply,
                text=answer.text,
                structured_data=answer.structured_data,
                actions=list(answer.actions),
                usage=answer.usage,
            )
        )
    if error:
        told.append(
            Failure(code=error.code, message=str(error), status=http_status, temporary=error.temporary)
        )
    return [*told, TurnEnd(status=status, message_id=message, code=error.code if error else None)]


def _push(turn: Turn, ending: Ending, at: datetime) -> Push:
    answer = ending.answer
    if answer and ending.reply and ending.status is TurnStatus.DONE:
        return Reply(
            content=answer.text,
            session_id=turn.handle,
            actions_taken=list(answer.actions),
            message_id=ending.reply,
            turn_id=turn.id,
            conversation_id=turn.conversation,
            timestamp=at,
        )
    error = ending.error or GenerationAborted()
    return Failed(
        content=str(error),
        session_id=turn.handle,
        code=error.code,
        message_id=turn.message,
        turn_id=turn.id,
        conversation_id=turn.conversation,
        timestamp=at,
    )
