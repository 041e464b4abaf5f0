"""Models by name, their answers as streams that really close, and their failures as our errors.

LangChain costs seconds and tens of megabytes to import, so it is imported when the first model is made.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Self, cast

from tertulia.core.errors import (
    AgentError,
    AgentLimit,
    GenerationTimeout,
    ModelInterrupted,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    TurnError,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk

# These say so if they need other settings; the rest of LangChain's providers differ in what they accept.
TAKES_TIMEOUT = frozenset(
    {"anthropic", "azure_openai", "deepseek", "fireworks", "groq", "mistralai", "openai", "openrouter", "xai"}
)
# The SDK asks Gemini to give up after the whole time we wait for one sign of life, unless it is told another.
WHOLE_ANSWER_SECONDS = 600
CONNECTIONS = 1000

FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
TOO_LONG = frozenset(
    {"MAX_TOKENS", "MAX_OUTPUT_TOKENS", "LENGTH", "MODEL_LENGTH", "MODEL_CONTEXT_WINDOW_EXCEEDED"}
)
DECLINED = frozenset(
    {
        "BLOCKED",
        "BLOCKLIST",
        "CONTENT_FILTER",
        "CONTENT_FILTERED",
        "GUARDRAIL_INTERVENED",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_SAFETY",
        "LANGUAGE",
        "PROHIBITED_CONTENT",
        "RECITATION",
        "REFUSAL",
        "SAFETY",
        "SPII",
    }
)
BROKEN = frozenset(
    {
        "ERROR",
        "FINISH_REASON_UNSPECIFIED",
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE",
        "OTHER",
        "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
    }
)


def make_model(
    name: str, *, base_url: str | None, google_api_key: str | None, timeout: float
) -> "BaseChatModel":
    """The chat model that `provider:model` names; `ModelRefused` says what to install or set otherwise.

    The first call imports the provider and blocks for seconds: not for the event loop's thread.
    `timeout` is the time without a sign of life. Failed calls are not repeated here: the turn does that.
    """
    provider, _, model = name.partition(":")
    if provider == "demo":
        return _demo()
    if provider == "google_genai":
        return _gemini(model, base_url, google_api_key, timeout)
    return _other(provider, model, base_url, timeout)


def _demo() -> "BaseChatModel":
    from tertulia.agents.demo import DemoModel

    return DemoModel()


def _gemini(model: str, base_url: str | None, key: str | None, timeout: float) -> "BaseChatModel":
    if not key:
        raise ModelRefused("Gemini needs a key: set GOOGLE_API_KEY, or TERTULIA_MODEL to another model.")
    if not model:
        raise ModelRefused("Set TERTULIA_MODEL to a whole name, such as google_genai:gemini-2.5-flash.")
    import httpx
    from pydantic import SecretStr

    from tertulia.agents.gemini import Gemini

    make: Any = Gemini  # whose fields have other names in its signature
    return make(
        model=model,
        api_key=SecretStr(key),
        base_url=base_url,
        timeout=timeout,
        max_retries=1,  # the first try and none after it; 0 would mean Google's default of 5
        additional_headers={"X-Server-Timeout": str(WHOLE_ANSWER_SECONDS)},
        client_args={"limits": httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=100)},
    )


def _other(provider: str, model: str, base_url: str | None, timeout: float) -> "BaseChatModel":
    from langchain.chat_models import init_chat_model

    options: dict[str, Any] = {"base_url": base_url} if base_url else {}
    if provider in TAKES_TIMEOUT:
        options |= {"timeout": timeout, "max_retries": 0}
    try:
        return cast("BaseChatModel", init_chat_model(model, model_provider=provider, **options))
    except Exception as error:  # every provider refuses in its own way
        raise ModelRefused(_advice(provider, model, error)) from error


def how_to_install(package: str) -> str:
    return f"Install it beside tertulia: pip install {package} (in a checkout: make add PACKAGE={package})."


def _advice(provider: str, model: str, error: Exception) -> str:
    if isinstance(error, ImportError):
        package = str(error).partition("requires the ")[2].partition(" package")[0] or f"langchain-{provider}"
        return f"Models of {provider} need a package that is not installed. {how_to_install(package)}"
    if isinstance(error, ValueError) and str(error).startswith("Unsupported provider"):
        return f"There is no provider {provider}. Set TERTULIA_MODEL to another, such as openai:gpt-5."
    key = f"{provider.upper()}_API_KEY"
    return f"{provider}:{model} could not be set up: set the key that the provider asks for, such as {key}."


class ModelStream:
    """The chunks of one answer; leaving its `async with` closes the provider's connection.

    Whatever goes wrong is raised as a `TurnError`: also `timeout` seconds without a chunk, and an answer
    that ends without having been finished. `reason` is why the model stopped, once it has.
    """

    def __init__(self, chunks: AsyncIterator[Any], *, timeout: float) -> None:
        self._chunks = cast("AsyncIterator[AIMessageChunk]", chunks)
        self._timeout = timeout
        self._open = False
        self.reason: str | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "AIMessageChunk":
        self._open = True
        try:
            async with asyncio.timeout(self._timeout):
                chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._open = False
            if fault := fault_of(self.reason):
                raise fault from None
            raise
        except Exception as error:  # whatever a provider raises is one of our errors from here on
            self._open = False
            raise as_turn_error(error) from error
        self.reason = finish_reason(chunk) or self.reason
        return chunk

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection to the provider now.

        Only a cancellation that meets the generator while it reads does that: its own `aclose()` leaves the
        connection to the garbage collector, since google-genai's response refers to itself.
        """
        for _ in range(1000):
            if not self._open:
                return
            await self._cancel_next()

    async def _cancel_next(self) -> None:
        reading = asyncio.ensure_future(anext(self._chunks))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait((reading,))
        self._open = not reading.cancelled() and reading.exception() is None


def finish_reason(chunk: "AIMessageChunk") -> str | None:
    """Why the model stopped, in upper case, if this chunk tells; only one of an answer's last chunks does."""
    metadata: dict[str, Any] = chunk.response_metadata
    reason = next((metadata[key] for key in FINISH_KEYS if metadata.get(key)), None)
    if reason is None and "prompt_feedback" in metadata:
        return "BLOCKED"
    return str(reason).upper() if reason else None


def fault_of(reason: str | None) -> TurnError | None:
    """What is wrong with an answer that ended for this reason; None if it is complete."""
    if reason is None:
        return ModelInterrupted()
    if reason in TOO_LONG:
        return AgentLimit("The answer reached the model's limit of length before it was complete.")
    if reason in DECLINED:
        return ModelRefused("The model declined to answer this. Rephrasing it may help.")
    return ModelUnavailable() if reason in BROKEN else None


def as_turn_error(error: BaseException) -> TurnError:
    """Our error for what LangChain, a provider's SDK or its HTTP client raised; its cause is `error`.

    Its sentence never repeats the provider's words, which may hold addresses or keys.
    """
    if isinstance(error, TurnError):
        return error
    recognised = (_by_status(cause) or _by_kind(cause) for cause in _causes(error))
    found = next((turn_error for turn_error in recognised if turn_error), AgentError())
    found.__cause__ = error
    return found


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, outermost first."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _by_kind(error: BaseException) -> TurnError | None:
    import httpx
    from langchain_core.exceptions import ContextOverflowError

    if isinstance(error, ContextOverflowError):
        return ModelRefused("The conversation is too long for this model.")
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return ModelUnavailable()
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return GenerationTimeout()
    if isinstance(error, httpx.TransportError):
        return ModelInterrupted()
    return ModelUnavailable() if isinstance(error, OSError | ValueError) else None


def _by_status(error: BaseException) -> TurnError | None:
    status = _status(error)
    if status is None or status < 400:
        return None
    if status == 429:
        return ModelRateLimited(retry_after=_retry_after(error))
    if status in (408, 504):
        return GenerationTimeout()
    if status == 404:
        return ModelRefused(
            "The provider has no such model. The server's operator should check TERTULIA_MODEL."
        )
    if status >= 500 or status in (409, 425, 499):
        return ModelUnavailable(retry_after=_retry_after(error))
    return ModelRefused()


def _status(error: BaseException) -> int | None:
    """The HTTP status: `status_code` in most SDKs, `code` in Google's."""
    found = (cast("object", getattr(error, name, None)) for name in ("status_code", "code"))
    return next((value for value in found if isinstance(value, int)), None)


def _retry_after(error: BaseException) -> int | None:
    """The seconds the provider asks us to wait: Google's `RetryInfo`, or the `Retry-After` header."""
    details = cast("dict[str, Any]", getattr(error, "details", None) or {})
    infos = cast("list[dict[str, str]]", details.get("error", details).get("details") or [])
    delay = next((info["retryDelay"] for info in infos if "retryDelay" in info), None)
    headers = cast("dict[str, str]", getattr(getattr(error, "response", None), "headers", None) or {})
    return _whole_seconds(delay or headers.get("retry-after", ""))


def _whole_seconds(text: str) -> int | None:
    try:
        return max(1, -int(-float(text.removesuffix("s")) // 1))
    except ValueError:
        return None
