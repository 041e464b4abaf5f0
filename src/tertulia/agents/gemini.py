"""LangChain's Gemini model with a shorter way over the wire for plain talk.

Google's SDK makes and checks a dozen objects for each message it sends and each piece it receives, which costs more
CPU than all the rest of a turn. Here texts go into the request, and out of the pieces of the answer, directly;
everything else (tools that were used, thoughts, refusals, images) takes LangChain's own way. What is sent and what
comes out is the same, which the tests hold against each other.
"""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, cast

import httpx
import msgspec
from google.genai import _common, errors, models, types
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.messages.ai import UsageMetadata, add_usage, subtract_usage
from langchain_core.outputs import ChatGenerationChunk
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_google_genai import chat_models as stock
from pydantic import PrivateAttr

Json = dict[str, Any]

_ROLES: dict[type[BaseMessage], str] = {HumanMessage: "user", AIMessage: "model"}
_PLAIN_CANDIDATE = {"content", "finishReason", "index"}
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class _Template(NamedTuple):
    """A request without its conversation."""

    url: str
    headers: dict[str, str]
    body: Json


class Gemini(ChatGoogleGenerativeAI):
    """`ChatGoogleGenerativeAI`, but that plain streams cost a quarter."""

    _templates: dict[str, _Template] = PrivateAttr(default_factory=dict)
    _http: httpx.AsyncClient | None = PrivateAttr(default=None)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        contents = _contents(messages)
        if contents is None or stop or kwargs.keys() - {"tools"}:
            langchains: Any = super()
            async for chunk in langchains._astream(messages, stop, run_manager, **kwargs):
                yield chunk
            return
        template = self._template(kwargs.get("tools"))
        body = msgspec.json.encode(template.body | contents)
        pieces = _Pieces()
        async with self._client().stream(
            "POST", template.url, content=body, headers=template.headers
        ) as response:
            if response.status_code >= 400:
                raise _refusal(response.status_code, await response.aread())
            async for event in _events(response):
                for chunk in pieces.read(event):
                    if run_manager:
                        await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            self._http = httpx.AsyncClient(timeout=self.timeout, **(self.client_args or {}))
        return self._http

    def _template(self, tools: Sequence[Any] | None) -> _Template:
        """What the SDK would send, taken from it once for each set of tools."""
        name = repr(tools)
        if name not in self._templates:
            self._templates[name] = self._sent_by_the_sdk(tools)
        return self._templates[name]

    def _sent_by_the_sdk(self, tools: Sequence[Any] | None) -> _Template:
        sdk: Any = self.async_client
        client = sdk._api_client
        prepare: Any = cast(Any, self)._prepare_request
        given = prepare([HumanMessage("?")], tools=tools)
        convert: Any = models._GenerateContentParameters_to_mldev  # pyright: ignore[reportPrivateUsage]
        parameters: Any = types._GenerateContentParameters(**given)  # pyright: ignore[reportPrivateUsage]
        body: Any = _common.convert_to_dict(convert(client, parameters, None, parameters))
        path = "{model}:streamGenerateContent?alt=sse".format_map(body["_url"])
        body.pop("config", None)
        options = parameters.config.http_options if parameters.config else None
        request = client._build_request("post", path, _common.encode_unserializable_types(body), options)
        rest = {key: value for key, value in request.data.items() if key != "contents"}
        return _Template(request.url, dict(request.headers), rest)


def _contents(messages: Sequence[BaseMessage]) -> Json | None:
    """The conversation as Gemini reads it, if it is nothing but talk after one system message."""
    if not messages or not isinstance(messages[0], SystemMessage) or not isinstance(messages[0].content, str):
        return None
    contents: list[Json] = []
    for message in messages[1:]:
        role, text = _ROLES.get(type(message)), message.content
        if role is None or not isinstance(text, str) or not text or getattr(message, "tool_calls", None):
            return None
        contents.append({"parts": [{"text": text}], "role": role})
    return {"contents": contents, "systemInstruction": {"parts": [{"text": messages[0].content}]}}


async def _events(response: httpx.Response) -> AsyncIterator[Json]:
    """The server-sent events of an answer, each a JSON object."""
    rest = b""
    async for received in response.aiter_bytes():
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield _event(line[5:])
    if rest.startswith(b"data:"):
        yield _event(rest[5:])


def _event(data: bytes) -> Json:
    try:
        event = _decode(data)
    except msgspec.DecodeError:
        event = json.loads(data)  # it may hold half of a surrogate pair, which only this one reads
    if "error" in event:
        raise _refusal(event["error"].get("code", 500), data)
    return event


def _refusal(status: int, body: bytes) -> errors.APIError:
    try:
        details: Any = _decode(body)
    except msgspec.DecodeError:
        details = {"error": {"code": status, "message": ""}}
    kind = errors.ClientError if status < 500 else errors.ServerError
    return kind(status, details)


class _Pieces:
    """The pieces of one answer as LangChain's chunks; token counts come as sums and are told as differences."""

    def __init__(self) -> None:
        self._usage: UsageMetadata | None = None
        self._indexer: Any = stock._StreamBlockIndexer()  # pyright: ignore[reportPrivateUsage]

    def read(self, event: Json) -> list[ChatGenerationChunk]:
        text = _plain_text(event)
        return [self._plain(event, text)] if text is not None else self._by_langchain(event)

    def _plain(self, event: Json, text: str) -> ChatGenerationChunk:
        info: Json = {"safety_ratings": []}
        if reason := event["candidates"][0].get("finishReason"):
            info = {"finish_reason": reason, "model_name": event.get("modelVersion", ""), **info}
        metadata = {"model_provider": "google_genai", **info}
        message = AIMessageChunk(content=text, response_metadata=metadata)
        message.usage_metadata = self._counted(event.get("usageMetadata"))
        return ChatGenerationChunk(message=message, generation_info=info)

    def _counted(self, counts: Json | None) -> UsageMetadata | None:
        if not counts:
            return None
        thoughts = counts.get("thoughtsTokenCount", 0)
        sums = UsageMetadata(
            input_tokens=counts.get("promptTokenCount", 0) + counts.get("toolUsePromptTokenCount", 0),
            output_tokens=counts.get("candidatesTokenCount", 0) + thoughts,
            total_tokens=counts.get("totalTokenCount", 0),
            input_token_details={"cache_read": counts.get("cachedContentTokenCount", 0)},
        )
        if thoughts:
            sums["output_token_details"] = {"reasoning": thoughts}
        told = subtract_usage(sums, self._usage)
        if self._usage and sums["input_tokens"] < self._usage["input_tokens"]:
            told["input_tokens"] = (
                sums["input_tokens"] - self._usage["input_tokens"]
            )  # a correction of the sum
        self._usage = sums
        return told

    def _by_langchain(self, event: Json) -> list[ChatGenerationChunk]:
        response = types.GenerateContentResponse._from_response(response=event, kwargs={})  # pyright: ignore[reportPrivateUsage]
        result: Any = stock._response_to_result(response, stream=True, prev_usage=self._usage)  # pyright: ignore[reportPrivateUsage]
        chunks: list[ChatGenerationChunk] = result.generations
        for chunk in chunks:
            message = cast(AIMessageChunk, chunk.message)
            self._indexer.assign(message)
            self._usage = add_usage(self._usage, message.usage_metadata)
        return chunks


def _plain_text(event: Json) -> str | None:
    """The text of a piece that holds nothing else; None for any other piece."""
    candidates = event.get("candidates")
    if not candidates or len(candidates) != 1 or candidates[0].keys() - _PLAIN_CANDIDATE:
        return None
    parts = candidates[0].get("content", {}).get("parts")
    if not parts or len(parts) != 1 or parts[0].keys() != {"text"} or not parts[0]["text"]:
        return None
    return parts[0]["text"] if event.get("modelVersion", "").startswith("gemini-2") else None
