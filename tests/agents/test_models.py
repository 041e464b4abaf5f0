import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from tertulia.agents.models import ModelStream, as_turn_error, fault_of, finish_reason, make_model
from tertulia.core.errors import (
    AgentError,
    GenerationTimeout,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    TurnError,
    TurnPoisoned,
)
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import (
    Answer,
    blocked,
    call,
    calls,
    cut,
    cut_call,
    empty,
    endless,
    failing_late,
    failure,
    hang,
    limited,
    malformed,
    nothing,
    text,
    unfinished,
)

GEMINI = "google_genai:gemini-2.5-flash"


@tool
def notify_user(user_id: str, message: str) -> str:
    """Tell a user something."""
    return f"told {user_id}: {message}"


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedGemini]:
    with ScriptedGemini() as running:
        yield running


@pytest.fixture(scope="module")
def model(server: ScriptedGemini) -> BaseChatModel:
    return make_model(GEMINI, base_url=server.url, google_api_key="k" * 39, timeout=1.0)


@pytest.fixture
def gemini(server: ScriptedGemini) -> ScriptedGemini:
    server.reset()
    return server


def stream(model: BaseChatModel, said: str = "Hi", *, timeout: float = 5.0) -> ModelStream:
    return ModelStream(model.bind_tools([notify_user]).astream([HumanMessage(said)]), timeout=timeout)


async def heard(model: BaseChatModel, said: str = "Hi", *, timeout: float = 5.0) -> list[AIMessageChunk]:
    async with stream(model, said, timeout=timeout) as chunks:
        return [chunk async for chunk in chunks]


async def heard_until_it_failed(model: BaseChatModel) -> list[AIMessageChunk]:
    chunks: list[AIMessageChunk] = []
    with contextlib.suppress(TurnError):
        async with stream(model) as answered:
            async for chunk in answered:
                chunks.append(chunk)  # noqa: PERF401 - a comprehension would be lost with the error
    assert chunks
    return chunks


def whole(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    message = chunks[0]
    for chunk in chunks[1:]:
        message += chunk
    return message


async def failed(
    gemini: ScriptedGemini, model: BaseChatModel, scripted: Answer, **options: float
) -> TurnError:
    gemini.script(scripted)
    with pytest.raises(TurnError) as caught:
        await heard(model, **options)
    return caught.value


# Answers


async def test_text_comes_in_the_pieces_that_gemini_sent(gemini: ScriptedGemini, model: BaseChatModel):
    gemini.script(text("one two three", chunks=3))
    chunks = await heard(model)
    assert [chunk.text for chunk in chunks if chunk.text] == ["one ", "two ", "three"]


async def test_pieces_are_heard_as_they_come(gemini: ScriptedGemini, model: BaseChatModel):
    gemini.script(text(chunks=3, delay=0.2))
    began = time.monotonic()
    async with stream(model) as chunks:
        await anext(chunks)
        assert time.monotonic() - began < 0.2


async def test_gemini_3_says_its_text_in_blocks_and_it_reads_the_same(
    gemini: ScriptedGemini, model: BaseChatModel
):
    gemini.script(text("one two three", version="gemini-3-pro"))
    message = whole(await heard(model))
    assert message.text == "one two three"
    assert message.content == [{"type": "text", "text": "one two three", "index": 0}]


async def test_usage_is_told_once_over_all_chunks(gemini: ScriptedGemini, model: BaseChatModel):
    gemini.script(text(chunks=4))
    usage = whole(await heard(model)).usage_metadata
    assert usage
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (10, 4, 14)


async def test_a_tool_call_has_name_arguments_and_id(gemini: ScriptedGemini, model: BaseChatModel):
    gemini.script(call("notify_user", {"user_id": "bob", "message": "hi"}, said="One moment. "))
    message = whole(await heard(model))
    assert message.text == "One moment. "
    [made] = message.tool_calls
    assert made["name"] == "notify_user"
    assert made["args"] == {"user_id": "bob", "message": "hi"}
    assert made["id"]


@pytest.mark.parametrize("together", [True, False])
async def test_parallel_tool_calls_stay_apart(gemini: ScriptedGemini, model: BaseChatModel, together: bool):
    wanted = ({"name": "notify_user", "args": {"user_id": user, "message": "hi"}} for user in ("bob", "eve"))
    gemini.script(calls(*wanted, together=together))
    made = whole(await heard(model)).tool_calls
    assert [each["args"]["user_id"] for each in made] == ["bob", "eve"]
    assert made[0]["id"] != made[1]["id"]


async def test_the_model_is_shown_prompt_history_tools_and_results(
    gemini: ScriptedGemini, model: BaseChatModel
):
    messages = [
        SystemMessage("Be kind."),
        HumanMessage("Tell bob."),
        AIMessage("", tool_calls=[{"name": "notify_user", "args": {"user_id": "bob"}, "id": "c1"}]),
        ToolMessage("done", tool_call_id="c1", name="notify_user"),
    ]
    async with ModelStream(model.bind_tools([notify_user]).astream(messages), timeout=5) as chunks:
        assert [chunk async for chunk in chunks]
    [request] = gemini.requests
    assert request.system == "Be kind."
    assert request.said == [("user", "Tell bob.")]
    assert request.tools == ["notify_user"]
    assert [result["name"] for result in request.tool_results] == ["notify_user"]


async def test_a_token_in_the_message_chooses_the_answer(gemini: ScriptedGemini, model: BaseChatModel):
    assert whole(await heard(model, 'Say [[text {"said": "this", "chunks": 1}]]')).text == "this"


async def test_the_answer_can_be_had_whole(gemini: ScriptedGemini, model: BaseChatModel):
    gemini.script(text("one two three"))
    request = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    async with httpx.AsyncClient(base_url=gemini.url) as client:
        answered = await client.post("/v1beta/models/gemini-2.5-flash:generateContent", json=request)
    candidate = answered.json()["candidates"][0]
    assert candidate["content"]["parts"] == [{"text": "one two three"}]
    assert candidate["finishReason"] == "STOP"


async def test_gemini_is_not_told_to_give_up_while_we_still_listen(
    gemini: ScriptedGemini, model: BaseChatModel
):
    await heard(model)
    assert gemini.requests[0].headers["x-server-timeout"] == "600"


# Failures


@pytest.mark.parametrize(
    ("scripted", "code", "temporary"),
    [
        (limited(), "MODEL_RATE_LIMITED", True),
        (failure(500), "MODEL_UNAVAILABLE", True),
        (failure(503), "MODEL_UNAVAILABLE", True),
        (failure(504), "GENERATION_TIMEOUT", True),
        (failure(400), "MODEL_REFUSED", False),
        (failure(401), "MODEL_REFUSED", False),
        (failure(403), "MODEL_REFUSED", False),
        (failure(404), "MODEL_REFUSED", False),
        (failing_late(503), "MODEL_UNAVAILABLE", True),
        (cut(), "MODEL_INTERRUPTED", True),
        (cut(inside=True), "MODEL_INTERRUPTED", True),
        (cut(after=0), "MODEL_INTERRUPTED", True),
        (cut_call(), "MODEL_INTERRUPTED", True),
        (unfinished(), "MODEL_INTERRUPTED", True),
        (malformed(), "MODEL_UNAVAILABLE", True),
        (nothing(), "MODEL_UNAVAILABLE", True),
        (text(finish="MAX_TOKENS"), "AGENT_LIMIT_REACHED", False),
        (text(finish="SAFETY"), "MODEL_REFUSED", False),
        (empty(finish="MALFORMED_FUNCTION_CALL"), "MODEL_UNAVAILABLE", True),
        (blocked(), "MODEL_REFUSED", False),
    ],
    ids=lambda value: None if isinstance(value, Answer) else str(value),
)
async def test_each_failure_has_its_error(
    gemini: ScriptedGemini, model: BaseChatModel, scripted: Answer, code: str, temporary: bool
):
    error = await failed(gemini, model, scripted)
    assert (error.code, error.temporary) == (code, temporary)


async def test_a_model_that_is_silent_at_the_start_times_out(gemini: ScriptedGemini, model: BaseChatModel):
    assert (await failed(gemini, model, hang(), timeout=0.2)).code == "GENERATION_TIMEOUT"


async def test_a_model_that_falls_silent_times_out(gemini: ScriptedGemini, model: BaseChatModel):
    assert (await failed(gemini, model, hang(said="Well, "), timeout=0.2)).code == "GENERATION_TIMEOUT"


async def test_the_http_client_times_out_by_itself(gemini: ScriptedGemini, model: BaseChatModel):
    assert (await failed(gemini, model, hang(), timeout=5)).code == "GENERATION_TIMEOUT"


async def test_a_slow_answer_that_shows_life_does_not_time_out(gemini: ScriptedGemini, model: BaseChatModel):
    gemini.script(text(chunks=6, delay=0.3))
    assert whole(await heard(model, timeout=1)).text == "Hello from the scripted model."


async def test_a_provider_that_is_not_there_is_unavailable():
    model = make_model(GEMINI, base_url="http://127.0.0.1:9", google_api_key="k", timeout=1.0)
    with pytest.raises(ModelUnavailable):
        await heard(model)


async def test_what_was_heard_before_a_cut_is_kept(gemini: ScriptedGemini, model: BaseChatModel):
    gemini.script(cut("one two three four", chunks=4, after=2))
    assert whole(await heard_until_it_failed(model)).text == "one two t"


async def test_a_call_that_was_cut_is_no_call(gemini: ScriptedGemini, model: BaseChatModel):
    gemini.script(cut_call())
    message = whole(await heard_until_it_failed(model))
    assert (message.text, message.tool_calls, message.invalid_tool_calls) == ("Let me see. ", [], [])


async def test_the_providers_wish_to_wait_is_passed_on(gemini: ScriptedGemini, model: BaseChatModel):
    assert (await failed(gemini, model, limited(retry_after=7))).retry_after == 7


async def test_failed_calls_are_not_repeated_behind_our_back(gemini: ScriptedGemini, model: BaseChatModel):
    await failed(gemini, model, failure(500))
    assert len(gemini.requests) == 1


async def test_the_message_of_an_error_keeps_the_providers_words_to_its_cause(
    gemini: ScriptedGemini, model: BaseChatModel
):
    error = await failed(gemini, model, failure(400, message="API key k1234 is not valid"))
    assert "k1234" not in str(error)
    assert "k1234" in str(error.__cause__)


async def test_an_empty_answer_that_was_finished_is_an_answer(gemini: ScriptedGemini, model: BaseChatModel):
    gemini.script(empty())
    assert whole(await heard(model)).text == ""


def test_our_own_errors_stay_what_they_are():
    error = TurnPoisoned()
    assert as_turn_error(error) is error


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (TimeoutError(), GenerationTimeout),
        (ConnectionResetError(), ModelUnavailable),
        (httpx.PoolTimeout("full"), ModelUnavailable),
        (json.JSONDecodeError("what", "", 0), ModelUnavailable),
        (RuntimeError("?"), AgentError),
    ],
)
def test_errors_of_other_clients_are_recognised(raised: Exception, expected: type[TurnError]):
    assert type(as_turn_error(raised)) is expected


def test_a_retry_after_header_is_read():
    class RateLimitError(Exception):
        """As SDKs that keep the response raise it."""

        status_code = 429
        response = httpx.Response(429, headers={"Retry-After": "2.5"})

    error = as_turn_error(RateLimitError())
    assert isinstance(error, ModelRateLimited)
    assert error.retry_after == 3


@pytest.mark.parametrize(
    "metadata", [{"finish_reason": "stop"}, {"stop_reason": "end_turn"}, {"done_reason": "stop"}]
)
def test_other_providers_ends_are_recognised(metadata: dict[str, str]):
    assert fault_of(finish_reason(AIMessageChunk(content="", response_metadata=metadata))) is None


# Going away


async def seen_leaving(gemini: ScriptedGemini, since: float) -> float:
    request = await asyncio.to_thread(gemini.wait_for_disconnect, 5.0)
    assert request.disconnected_at is not None
    return request.disconnected_at - since


@pytest.mark.parametrize("scripted", [endless(), hang(), hang(said="Well, "), text(first=5)])
async def test_cancelling_the_reader_closes_upstream(
    gemini: ScriptedGemini, model: BaseChatModel, scripted: Answer
):
    gemini.script(scripted)
    reading = asyncio.create_task(heard(model))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await seen_leaving(gemini, began) < 1


async def test_leaving_between_two_chunks_closes_upstream(gemini: ScriptedGemini, model: BaseChatModel):
    gemini.script(endless())
    async with stream(model) as chunks:
        await anext(chunks)
    began = time.monotonic()
    assert await seen_leaving(gemini, began) < 1


async def test_being_cancelled_between_two_chunks_closes_upstream(
    gemini: ScriptedGemini, model: BaseChatModel
):
    gemini.script(endless())

    async def read_and_be_busy() -> None:
        async with stream(model) as chunks:
            await anext(chunks)
            await asyncio.sleep(60)

    busy = asyncio.create_task(read_and_be_busy())
    await asyncio.sleep(0.2)
    began = time.monotonic()
    busy.cancel()
    assert await seen_leaving(gemini, began) < 1
    assert (await asyncio.gather(busy, return_exceptions=True))[0].__class__ is asyncio.CancelledError


async def test_leaving_with_many_chunks_unread_closes_upstream(gemini: ScriptedGemini, model: BaseChatModel):
    whole_answer = text("word " * 300, chunks=300)
    gemini.script(Answer(whole_answer.pieces, then="hang"))
    async with stream(model) as chunks:
        await anext(chunks)
    began = time.monotonic()
    assert await seen_leaving(gemini, began) < 1


async def test_a_stream_that_was_never_read_asks_nothing(gemini: ScriptedGemini, model: BaseChatModel):
    async with stream(model):
        pass
    assert not gemini.requests


# Names


def test_importing_this_module_imports_no_langchain():
    heavy = "[name for name in sys.modules if name.startswith(('langchain', 'google'))]"
    code = f"import sys, tertulia.agents.models; print({heavy})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("google_genai:gemini-2.5-flash", "GOOGLE_API_KEY"),
        ("openai:gpt-5", "pip install langchain-openai"),
        ("acme:best", "TERTULIA_MODEL"),
    ],
)
def test_a_model_that_cannot_be_had_says_what_to_do(name: str, advice: str):
    with pytest.raises(ModelRefused, match=advice):
        make_model(name, base_url=None, google_api_key=None, timeout=1.0)


def test_the_demo_model_needs_nothing():
    assert make_model("demo:", base_url=None, google_api_key=None, timeout=1.0)._llm_type == "tertulia-demo"


# The scripted server as a process of its own, for benchmarks


@pytest.fixture
async def gemini_process() -> AsyncIterator[str]:
    command = [sys.executable, "-m", "tests.support.gemini", "--port", "0", "--chunks", "20"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    yield f"http://127.0.0.1:{(await process.stdout.readline()).decode().strip()}"
    process.terminate()
    await asyncio.wait_for(process.wait(), 10)


async def test_the_scripted_server_runs_as_a_process(gemini_process: str):
    model = make_model(GEMINI, base_url=gemini_process, google_api_key="k", timeout=5.0)
    assert len([chunk for chunk in await heard(model) if chunk.text]) == 20


async def test_the_process_is_scripted_over_http(gemini_process: str):
    model = make_model(GEMINI, base_url=gemini_process, google_api_key="k", timeout=5.0)
    async with httpx.AsyncClient(base_url=gemini_process) as client:
        scripted = await client.post(
            "/control/script",
            json={"queue": [{"kind": "text", "said": "as told"}], "default": {"kind": "hang"}},
        )
        assert scripted.status_code == 204
        assert whole(await heard(model, "Hi!")).text == "as told"
        [recorded] = (await client.get("/control/requests")).json()
    assert recorded["body"]["contents"][0]["parts"] == [{"text": "Hi!"}]
