"""When the model fails: what the user sees, what the operator reads, and trying again."""

import asyncio

import pytest

from tests.scenarios.conftest import Someone, word
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import Answer, call, event, failure, text
from tests.support.instance import Instance
from tests.support.observe import asked, logged

LIMITED = "The model's provider is limiting requests. Please try again in a minute."
UNAVAILABLE = "The model's provider did not answer properly. Please try again later."
INTERRUPTED = "The answer broke off before it was complete. Please try again."
TIMEOUT = "The model took too long to answer. Please try again."
OPERATOR = (
    "The model's provider refused the request. The server's operator should check the model and its key."
)
NO_MODEL = "The provider has no such model. The server's operator should check TERTULIA_MODEL."
DECLINED = "The model declined to answer this. Rephrasing it may help."
TOO_LONG = "The answer reached the model's limit of length before it was complete."

FAILURES = [
    ("limited", "[[limited]]", "MODEL_RATE_LIMITED", LIMITED, 502),
    ("server error", '[[failure {"status": 500}]]', "MODEL_UNAVAILABLE", UNAVAILABLE, 502),
    ("error late in the stream", "[[failing_late]]", "MODEL_UNAVAILABLE", UNAVAILABLE, 502),
    ("key refused", '[[failure {"status": 403}]]', "MODEL_REFUSED", OPERATOR, 502),
    ("no such model", '[[failure {"status": 404}]]', "MODEL_REFUSED", NO_MODEL, 502),
    ("malformed chunks", '[[malformed {"said": "half of it"}]]', "MODEL_UNAVAILABLE", UNAVAILABLE, 502),
    ("half a stream", '[[cut {"said": "half of it"}]]', "MODEL_INTERRUPTED", INTERRUPTED, 502),
    ("an unfinished stream", '[[unfinished {"said": "never done"}]]', "MODEL_INTERRUPTED", INTERRUPTED, 502),
    ("half a tool call", "[[cut_call]]", "MODEL_INTERRUPTED", INTERRUPTED, 502),
    ("an empty stream", '[[empty {"finish": null}]]', "MODEL_INTERRUPTED", INTERRUPTED, 502),
    ("not even an event", "[[nothing]]", "MODEL_UNAVAILABLE", UNAVAILABLE, 502),
    ("silence in the middle", '[[hang {"said": "one moment"}]]', "GENERATION_TIMEOUT", TIMEOUT, 504),
    ("prompt blocked", "[[blocked]]", "MODEL_REFUSED", DECLINED, 502),
    (
        "answer too long",
        '[[text {"said": "long", "finish": "MAX_TOKENS"}]]',
        "AGENT_LIMIT_REACHED",
        TOO_LONG,
        502,
    ),
]


@pytest.mark.scenario("002", "LLM error handled gracefully")
@pytest.mark.parametrize(
    ("token", "code", "sentence", "status"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES]
)
async def test_a_failure_of_the_model_is_seen_by_the_user_everywhere_and_logged(
    strict: Instance, someone: Someone, token: str, code: str, sentence: str, status: int
) -> None:
    ann = await someone("ann", at=strict)
    first = await ann.send("Hello", session := word("s"))
    await ann.answered(first)
    async with ann.socket() as socket:
        await socket.subscribe(await ann.session_id(first))
        await socket.until("subscribed")
        sent = await ann.send(token, session)
        pushed = await socket.until("error", topic="user")
        if "turn_end" not in [frame["type"] for frame in socket.seen]:
            await socket.until("turn_end")
    assert (pushed["code"], pushed["content"], pushed["session_id"]) == (code, sentence, session)
    assert (pushed["message_id"], pushed["turn_id"]) == (sent["message_id"], sent["turn_id"])

    events = {frame["type"]: frame for frame in socket.seen if frame.get("turnId") == sent["turn_id"]}
    assert (events["error"]["data"]["code"], events["error"]["data"]["status"]) == (code, status)
    assert (events["turn_end"]["data"]["status"], events["turn_end"]["data"]["code"]) == ("failed", code)

    state = await ann.state(sent["message_id"])
    assert (state["status"], state["reply"]) == ("failed", None)
    assert (state["turns"][0]["code"], state["turns"][0]["error"]) == (code, sentence)

    after_a_reload = await ann.conversation(sent["conversation_id"])
    assert [(turn["status"], turn.get("code"), turn.get("error")) for turn in after_a_reload["turns"]] == [
        ("done", None, None),
        ("failed", code, sentence),
    ]
    assert [message["role"] for message in after_a_reload["messages"]] == ["user", "assistant", "user"]

    line = await logged(strict, "turn failed", turn=sent["turn_id"])
    assert (line["level"], line["code"], line["user"], line["tenant"]) == ("error", code, ann.name, "acme")
    assert line["conversation"] == sent["conversation_id"]


@pytest.mark.scenario("002", "LLM error handled gracefully")
async def test_a_model_that_says_nothing_at_all_is_given_up_after_one_wait(
    strict: Instance, someone: Someone, gemini: ScriptedGemini
) -> None:
    ann = await someone("ann", at=strict)
    state = await ann.ask(question := f"{word()} [[hang]]")
    assert (state["status"], state["turns"][0]["code"]) == ("failed", "GENERATION_TIMEOUT")
    assert len([1 for request in gemini.requests if request.said[-1] == ("user", question)]) == 1


def torn(target: User, where: str) -> Answer:
    """An answer with a call that would notify, which breaks off in the call or behind it, or just ends there."""
    arguments = {"user_id": target.name, "message": "Half of it"}
    said, called = call("notify_user", arguments, said="Let me see. ").pieces
    whole = event([{"functionCall": {"name": "notify_user", "args": arguments}}])
    assert b"finishReason" in called
    assert b"finishReason" not in whole
    pieces = {"in it": called[: len(called) // 2], "behind it": whole, "nowhere": whole}
    return Answer((said, pieces[where]), then="end" if where == "nowhere" else "cut")


@pytest.mark.parametrize("where", ["in it", "behind it", "nowhere"])
async def test_a_tool_that_was_called_in_an_answer_that_broke_off_is_not_used(
    someone: Someone, gemini: ScriptedGemini, where: str
) -> None:
    ann, bob = await someone("ann"), await someone("bob")
    assert (await bob.http.get("/api/notifications")).json()["notifications"] == []
    gemini.script(torn(bob, where))
    sent = await ann.send("Tell Bob", session := word("s"))
    state = await ann.answered(sent)
    assert (state["status"], state["turns"][0]["code"]) == ("failed", "MODEL_INTERRUPTED")
    assert state["turns"][0]["partial"] == "Let me see. "
    assert (await bob.http.get("/api/notifications")).json()["notifications"] == []
    history = (await ann.conversation(sent["conversation_id"]))["messages"]
    assert [message["contentType"] for message in history] == ["text"]
    assert (await ann.ask("And now?", session))["status"] == "done"


async def test_a_failure_before_the_first_word_is_tried_again_without_anybody_noticing(
    ann: User, gemini: ScriptedGemini
) -> None:
    gemini.script(failure(503), failure(429), text("Third time lucky"))
    state = await ann.ask(f"{word()} Hello?")
    assert (state["status"], state["reply"]["content"]) == ("done", "Third time lucky")
    assert state["turns"][0]["attempt"] == 1


async def test_a_failed_turn_leaves_the_conversation_usable_and_its_question_in_the_context(
    ann: User, gemini: ScriptedGemini
) -> None:
    session = word("s")
    failed = await ann.ask(wrong := f'{word()} [[failure {{"status": 403}}]]', session)
    assert failed["status"] == "failed"
    state = await ann.ask(question := f"{word()} And now?", session)
    assert state["status"] == "done"
    assert asked(gemini, question).said == [("user", wrong), ("user", question)]


async def test_a_failed_turn_can_be_tried_again_and_then_succeeds(ann: User, gemini: ScriptedGemini) -> None:
    gemini.script(failure(403))
    sent = await ann.send(question := f"{word()} Hello?", session := word("s"))
    assert (await ann.answered(sent))["status"] == "failed"
    async with ann.socket() as socket:
        response = await ann.http.post(f"/api/turns/{sent['turn_id']}/retry")
        assert response.status_code == 202
        assert response.json() == {
            "status": "queued",
            "turn_id": sent["turn_id"],
            "message_id": sent["message_id"],
            "session_id": session,
            "conversation_id": sent["conversation_id"],
        }
        pushed = await socket.until("message")
    state = await ann.state(sent["message_id"])
    assert pushed["content"] == "Hello from the scripted model."
    assert (state["status"], state["reply"]["content"]) == ("done", "Hello from the scripted model.")
    assert (state["turns"][0]["attempt"], state["turns"][0]["code"]) == (2, None)
    assert asked(gemini, question).said == [("user", question)]
    history = await ann.conversation(sent["conversation_id"])
    assert [message["role"] for message in history["messages"]] == ["user", "assistant"]


async def test_trying_again_at_once_twice_answers_once(ann: User, gemini: ScriptedGemini) -> None:
    gemini.script(failure(403))
    sent = await ann.send(f'{word()} [[text {{"said": "Once", "first": 0.3}}]]')
    assert (await ann.answered(sent))["status"] == "failed"
    address = f"/api/turns/{sent['turn_id']}/retry"
    both = await asyncio.gather(ann.http.post(address), ann.http.post(address))
    assert [response.status_code for response in both] == [202, 202]
    assert (await ann.answered(sent))["reply"]["content"] == "Once"
    history = await ann.conversation(sent["conversation_id"])
    assert [message["role"] for message in history["messages"]] == ["user", "assistant"]


async def test_a_turn_that_succeeded_or_is_anothers_can_not_be_tried_again(ann: User, bob: User) -> None:
    sent = await ann.send("Hello")
    await ann.answered(sent)
    done = await ann.http.post(f"/api/turns/{sent['turn_id']}/retry")
    assert (done.status_code, done.json()["error"]["code"]) == (409, "TURN_NOT_RETRYABLE")
    foreign = await bob.http.post(f"/api/turns/{sent['turn_id']}/retry")
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (404, "TURN_NOT_FOUND")
    nonsense = await ann.http.post("/api/turns/nonsense/retry")
    assert (nonsense.status_code, nonsense.json()["error"]["code"]) == (404, "TURN_NOT_FOUND")
