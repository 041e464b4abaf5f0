"""Everything that can go wrong for a caller: one tree, each with a stable code and a sentence that helps."""

from typing import ClassVar


class TertuliaError(Exception):
    """The root of all errors that a caller is told about.

    `code` is stable and for programs; the message is for people; `temporary` says whether trying again may help;
    `retry_after` is the number of seconds to wait before that.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    message: ClassVar[str] = "Something went wrong on our side. Please try again."
    temporary: ClassVar[bool] = False

    def __init__(self, message: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(message or self.message)
        self.retry_after = retry_after


class InvalidRequest(TertuliaError):
    code = "INVALID_REQUEST"
    message = "The request could not be understood."


class ActionNotOffered(InvalidRequest):
    code = "ACTION_NOT_OFFERED"
    message = "This briefing does not offer that action."


class MessageContentRequired(InvalidRequest):
    code = "MESSAGE_CONTENT_REQUIRED"
    message = "Write something first: the message is empty."


class MessageTooLong(InvalidRequest):
    code = "MESSAGE_TOO_LONG"
    message = "The message is too long. Please shorten it or send it in parts."


class BodyTooLarge(TertuliaError):
    code = "BODY_TOO_LARGE"
    message = "The request body is larger than this server accepts."


class UnsupportedMediaType(TertuliaError):
    code = "UNSUPPORTED_MEDIA_TYPE"
    message = "Bodies are JSON here: send it as application/json."


class Unauthenticated(TertuliaError):
    code = "UNAUTHENTICATED"
    message = "Sign in first: a valid bearer token is needed."


class Forbidden(TertuliaError):
    code = "FORBIDDEN"
    message = "You may not do this."


class MayNotPost(Forbidden):
    message = "Only agents, for themselves, and admins may post briefings."


class NotFound(TertuliaError):
    code = "NOT_FOUND"
    message = "There is nothing here."


class ConversationNotFound(NotFound):
    code = "CONVERSATION_NOT_FOUND"
    message = "There is no such conversation."


class MessageNotFound(NotFound):
    code = "MESSAGE_NOT_FOUND"
    message = "There is no such message."


class TurnNotFound(NotFound):
    code = "TURN_NOT_FOUND"
    message = "There is no such turn."


class NotificationNotFound(NotFound):
    code = "NOTIFICATION_NOT_FOUND"
    message = "There is no such notification."


class UserNotFound(NotFound):
    code = "USER_NOT_FOUND"
    message = "There is no such user here yet: somebody is known once they have signed in."


class BriefingNotFound(NotFound):
    code = "BRIEFING_NOT_FOUND"
    message = "There is no such briefing."


class AgentNotFound(NotFound):
    code = "AGENT_NOT_FOUND"
    message = "There is no agent with this id."


class Conflict(TertuliaError):
    code = "CONFLICT"
    message = "This does not fit the present state."


class AgentExists(Conflict):
    code = "AGENT_EXISTS"
    message = "There is an agent with this id already. Change it with PATCH, or choose another id."


class IdempotencyConflict(Conflict):
    code = "IDEMPOTENCY_KEY_REUSED"
    message = "This Idempotency-Key was used before with another body. Use a new key for a new request."


class TurnNotRetryable(Conflict):
    code = "TURN_NOT_RETRYABLE"
    message = "Only a failed or aborted turn can be tried again."


class TooManyRequests(TertuliaError):
    code = "RATE_LIMITED"
    message = "Too many requests. Please wait a moment and try again."
    temporary = True


class ConversationBusy(TooManyRequests):
    code = "CONVERSATION_BUSY"
    message = "This conversation still has unanswered messages. Please wait for an answer first."


class TooManyTurns(TooManyRequests):
    code = "TOO_MANY_TURNS"
    message = "You have many messages waiting for answers. Please wait until some are done."


class TooManyConnections(TooManyRequests):
    code = "TOO_MANY_CONNECTIONS"
    message = "You have too many connections open. Close one first."


class Unavailable(TertuliaError):
    code = "SERVICE_UNAVAILABLE"
    message = "A service that this server needs is not reachable. Please try again shortly."
    temporary = True


class TurnError(TertuliaError):
    """Why a turn ended without an answer; stored with the turn and shown to the person."""


class GenerationTimeout(TurnError):
    code = "GENERATION_TIMEOUT"
    message = "The model took too long to answer. Please try again."
    temporary = True


class GenerationAborted(TurnError):
    code = "GENERATION_ABORTED"
    message = "The answer was stopped."


class AgentError(TurnError):
    code = "AGENTX_ERROR"
    message = "The model could not answer. Please try again later."
    temporary = True


class ModelRateLimited(AgentError):
    code = "MODEL_RATE_LIMITED"
    message = "The model's provider is limiting requests. Please try again in a minute."


class ModelUnavailable(AgentError):
    code = "MODEL_UNAVAILABLE"
    message = "The model's provider did not answer properly. Please try again later."


class ModelRefused(AgentError):
    code = "MODEL_REFUSED"
    message = (
        "The model's provider refused the request. The server's operator should check the model and its key."
    )
    temporary = False


class ModelInterrupted(AgentError):
    code = "MODEL_INTERRUPTED"
    message = "The answer broke off before it was complete. Please try again."


class AgentGone(AgentError):
    code = "AGENT_NOT_FOUND"
    message = "The agent that was asked is no longer there."
    temporary = False


class AgentLimit(AgentError):
    code = "AGENT_LIMIT_REACHED"
    message = "The agent reached its limit of steps or length before it was done."
    temporary = False


class TurnPoisoned(TurnError):
    code = "TURN_FAILED_REPEATEDLY"
    message = "This message could not be answered after several attempts. You can try again or rephrase it."
