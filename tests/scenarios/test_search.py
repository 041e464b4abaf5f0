"""Finding again what was said: in English and in what is written without spaces, one's own and nobody else's."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from tertulia.embedded import Services
from tests.scenarios.conftest import Someone, word
from tests.support.backends import of_superuser
from tests.support.client import User
from tests.support.gemini import ScriptedGemini
from tests.support.gemini_answers import hang, text
from tests.support.instance import Instance
from tests.support.observe import eventually
from tests.support.refusals import refused

Findable = Callable[..., Awaitable[list[dict[str, Any]]]]

SAID = {
    "runs": "She runs every morning before Work",
    "rate": "代码返工率50%，需要关注",
    "apart": "返工了两次，工率另算",
    "spaced": "我们的 AI 模型上线了",
    "joined": "用AI模型来做",
    "wide": "ＧＰＴ 评测",
    "simplified": "数据库性能测试",
    "traditional": "資料庫效能測試",
    "japanese": "明日の会議はカタカナで",
    "narrow": "ｶﾀｶﾅ",
    "korean": "회의는 오후입니다",
    "astral": "\U00020000",
    "emoji": "😀🎉👩‍👩‍👧 " * 10 + "\U00020001 shipping 顺利",
    "odd": 'It\'s "q" back\\slash co:lon x&y a|b !no (par) <-> \x02mark\x03 \x04end <b>bold</b> {} % _ ~',
}

FOUND = [
    ("running", {"runs": ["runs"]}),
    ("RUN work", {"runs": ["runs", "Work"]}),
    ("morning runs evening", {}),
    ("the and of", {}),
    ("返工率", {"rate": ["返工率"]}),
    ("返工", {"rate": ["返工"], "apart": ["返工"]}),
    ("率", {"rate": ["率"], "apart": ["率"]}),
    ("代码返工率50%", {"rate": ["代码返工率50"]}),
    ("关注 返工", {"rate": ["返工", "关注"]}),
    ("工返", {}),
    ("AI 模型", {"spaced": ["AI", "模型"], "joined": ["AI模型"]}),
    ("ai模型上线", {"spaced": ["AI", "模型上线"]}),
    ("ＡＩ", {"spaced": ["AI"], "joined": ["AI"]}),
    ("gpt", {"wide": ["ＧＰＴ"]}),
    ("数据库", {"simplified": ["数据库"]}),
    ("資料庫", {"traditional": ["資料庫"]}),
    ("会議", {"japanese": ["会議"]}),
    ("カタカナ", {"japanese": ["カタカナ"], "narrow": ["ｶﾀｶﾅ"]}),
    ("ｶﾀｶﾅで", {"japanese": ["カタカナで"]}),
    ("회의", {"korean": ["회의"]}),
    ("\U00020000", {"astral": ["\U00020000"]}),
    ("ship \U00020001", {"emoji": ["\U00020001", "shipping"]}),
    ("顺利", {"emoji": ["顺利"]}),
    ("bold back\\slash", {"odd": ["back", "slash", "bold"]}),
]

ODD = [
    *("\x02", "\x03", "\x02mark\x03", "\x04", "'", '"', "\\", ":", "&", "|", "!", "(", ")", "<->", ":*", "返:*"),
    *("a & b | !c", "'; DROP TABLE search; --", "'quoted'", "a\\'b", "%", "_", "<b>", "{}"),
    *("\u3000返工\u3000", "\ufdfa", "\U0001f600", "e\u0301"),
    *(part * (200 // len(part)) for part in ("x", "返", "㌀", "\ufdfa", "a-b-", "'", "1.2.", "a ", "返 ")),
]  # fmt: skip

WRONG = ["limit=0", "limit=51", "limit=x", "cursor=-1", "cursor=x", "cursor=10001", "cursor=٣"]


@pytest.fixture(scope="module")
async def behind(backends: Services) -> AsyncGenerator["asyncpg.Connection[Any]"]:
    """The shared server's database, as the superuser sees it."""
    connection = await asyncpg.connect(of_superuser(backends.database_url))
    yield connection
    await connection.close()


async def indexed(connection: "asyncpg.Connection[Any]", user: User) -> None:
    """Wait until all that this user's ended turns said can be found."""

    async def look() -> bool:
        waiting = "SELECT EXISTS (SELECT FROM unindexed WHERE tenant = $1 AND user_id = $2)"
        return not await connection.fetchval(waiting, user.tenant, user.name)

    await eventually(look, 30)


@pytest.fixture
def findable(behind: "asyncpg.Connection[Any]") -> Findable:
    """Says all this as the user, and comes back when it can be found."""

    async def say(user: User, *contents: str) -> list[dict[str, Any]]:
        states = list(await asyncio.gather(*(user.ask(content) for content in contents)))
        await indexed(behind, user)
        return states

    return say


async def search(user: User, q: str, **query: Any) -> dict[str, Any]:
    response = await user.http.get("/api/search", params={"q": q, **query})
    assert response.status_code == 200, response.text
    return response.json()


async def messages(user: User, q: str) -> list[str]:
    """The ids of the messages found."""
    return [hit["message_id"] for hit in (await search(user, q))["results"]]


@pytest.fixture(scope="module")
async def library(
    server: Instance, behind: "asyncpg.Connection[Any]"
) -> AsyncGenerator[tuple[User, dict[str, str]]]:
    """Somebody who has said all of `SAID`, and which message says what."""
    async with User(server.url, word("librarian")) as user:
        states = await asyncio.gather(*(user.ask(content) for content in SAID.values()))
        await indexed(behind, user)
        yield user, {state["message_id"]: name for state, name in zip(states, SAID, strict=True)}


@pytest.mark.parametrize(("q", "expected"), FOUND, ids=[q for q, _ in FOUND])
async def test_a_message_is_found_by_what_it_says_and_the_words_are_shown_where_they_are(
    library: tuple[User, dict[str, str]], q: str, expected: dict[str, list[str]]
) -> None:
    user, names = library
    found = (await search(user, q))["results"]
    shown = {
        names[hit["message_id"]]: [hit["excerpt"][first:last] for first, last in hit["highlights"]]
        for hit in found
    }
    assert shown == expected


async def test_an_excerpt_is_cut_before_what_was_found_and_else_the_text_as_it_was_written(
    library: tuple[User, dict[str, str]],
) -> None:
    user, _ = library
    [emoji] = (await search(user, "shipping"))["results"]
    assert emoji["excerpt"] == "…" + SAID["emoji"][-51:]
    assert emoji["highlights"] == [[41, 49]]
    [odd] = (await search(user, "back"))["results"]
    assert odd["excerpt"] == SAID["odd"].replace("\x02", "").replace("\x03", "").replace("\x04", "")
    assert (odd["role"], odd["seq"], odd["content_type"]) == ("user", 1, "text")


@pytest.mark.parametrize("q", ODD, ids=[ascii(q[:20]) for q in ODD])
async def test_nothing_that_can_be_asked_for_breaks_the_search(
    library: tuple[User, dict[str, str]], q: str
) -> None:
    await search(library[0], q)


@pytest.mark.parametrize("q", ["", " ", "\u3000", "\x00", "x" * 201])
async def test_a_search_for_nothing_or_too_much_is_refused(
    library: tuple[User, dict[str, str]], q: str
) -> None:
    response = await library[0].http.get("/api/search", params={"q": q})
    error = refused(response, 400, "INVALID_REQUEST")
    assert error["message"] == "q: 1 to 200 characters to look for."


@pytest.mark.parametrize("query", ["", *(f"q=a&{wrong}" for wrong in WRONG)])
async def test_a_search_that_is_not_well_put_is_refused(
    library: tuple[User, dict[str, str]], query: str
) -> None:
    refused(await library[0].http.get(f"/api/search?{query}"), 400, "INVALID_REQUEST")


@pytest.mark.parametrize("said", ["zebra", "返工率"])
async def test_who_says_it_more_goes_first_and_pages_miss_and_repeat_nothing(
    someone: Someone, findable: Findable, said: str
) -> None:
    user = await someone("ann")
    states = await findable(user, *(" and ".join([said] * n + ["lion"] * (6 - n)) for n in range(1, 6)))
    expected = [state["message_id"] for state in reversed(states)]
    assert await messages(user, said) == expected
    found: list[str] = []
    cursor: str | None = None
    for size in (2, 2, 1):
        page = await search(user, said, limit=2, **({"cursor": cursor} if cursor else {}))
        found += [hit["message_id"] for hit in page["results"]]
        assert len(page["results"]) == size
        cursor = page["next"]
    assert found == expected
    assert cursor is None


async def test_of_equals_the_newest_goes_first_and_answers_are_found_too(
    someone: Someone, findable: Findable
) -> None:
    user = await someone("ann")
    [older] = await findable(user, "A giraffe")
    [newer] = await findable(user, "A giraffe")
    assert await messages(user, "giraffes") == [newer["message_id"], older["message_id"]]
    answers = (await search(user, "scripted"))["results"]
    assert [(hit["role"], hit["agent_id"], hit["excerpt"]) for hit in answers] == [
        ("assistant", "assistant", "Hello from the scripted model."),
    ] * 2


async def test_long_texts_and_odd_ones_are_found_and_hold_nothing_up(
    someone: Someone, findable: Findable, gemini: ScriptedGemini
) -> None:
    user = await someone("ann")
    han = "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(9997))
    gemini.script(text("kangaroo " + "lorem " * 33_331, chunks=20))
    [long] = await findable(user, "Tell me much")
    odd = [han + "返工率", "y" * 10_000, "\U00020002" * 10_000, "㌀" * 10_000, "\u1112\u1161\u11ab" * 3333]
    odd += ["http://" + "a/" * 4996, "'\"\\:&|!()<->\x02\x03" * 625, "x-" * 5000, "\ufdfa" * 10_000]
    states = [(await findable(user, content))[0] for content in odd]
    [last] = await findable(user, "A wombat")
    assert len(long["reply"]["content"]) == 199_995
    assert await messages(user, "kangaroo") == [long["reply"]["id"]]
    assert await messages(user, "返工率") == [states[0]["message_id"]]
    assert await messages(user, han[5000:5100]) == [states[0]["message_id"]]
    assert await messages(user, "\U00020002\U00020002") == [states[2]["message_id"]]
    assert await messages(user, "アパート") == [states[3]["message_id"]]
    assert await messages(user, "한한") == [states[4]["message_id"]]
    assert await messages(user, "wombats") == [last["message_id"]]


async def test_a_message_is_found_by_nobody_else(someone: Someone, findable: Findable) -> None:
    user = await someone("ann")
    others = [await someone("bob"), User(user.url, user.name, "elsewhere")]
    [mine] = await findable(user, "The aardvark 食蚁兽")
    await others[1].send("Hello")
    for q in ("aardvark", "食蚁兽", "食"):
        assert await messages(user, q) == [mine["message_id"]]
        assert [await messages(other, q) for other in others] == [[], []]
    await others[1].http.aclose()


async def test_a_deleted_conversation_is_not_found_a_restored_one_is_again(
    someone: Someone, findable: Findable
) -> None:
    user = await someone("ann")
    [state] = await findable(user, "An ocelot")
    address = f"/api/conversations/{state['conversation_id']}"
    await user.http.delete(address)
    assert await messages(user, "ocelot") == []
    assert (await user.http.post(f"{address}/restore")).status_code == 200
    assert await messages(user, "ocelot") == [state["message_id"]]


async def test_what_is_erased_is_gone_from_the_terms_too(
    strict: Instance, strict_database: "asyncpg.Connection[Any]", someone: Someone
) -> None:
    user = await someone("ann", at=strict)
    state = await user.ask("A pangolin")
    await indexed(strict_database, user)
    kept = "SELECT count(*) FROM search WHERE user_id = $1"
    assert await messages(user, "pangolin") == [state["message_id"]]
    assert await strict_database.fetchval(kept, user.name) == 2
    await user.http.delete(f"/api/conversations/{state['conversation_id']}")

    async def look() -> bool:
        return await strict_database.fetchval(kept, user.name) == 0

    await eventually(look)
    assert await messages(user, "pangolin") == []


async def test_the_old_answer_of_a_turn_that_was_tried_again_is_not_found(
    someone: Someone, findable: Findable, behind: "asyncpg.Connection[Any]", gemini: ScriptedGemini
) -> None:
    user = await someone("ann")
    [first] = await findable(user, "Hello")
    gemini.script(hang(said="An old armadillo"), text("A new capybara"))
    session = first["conversation_id"]
    async with user.socket() as socket:
        await socket.subscribe(await user.session_id(first))
        await socket.until("subscribed")
        sent = await user.send("Which animal?", session)
        await socket.until("text_delta")
        await user.http.post(f"/api/conversations/{session}/abort")
        aborted = await user.answered(sent)
    await indexed(behind, user)
    assert aborted["status"] == "aborted"
    assert len(await messages(user, "armadillo")) == 1
    await user.http.post(f"/api/turns/{sent['turn_id']}/retry")
    again = await user.answered(sent)
    await indexed(behind, user)
    assert await messages(user, "armadillo") == []
    assert await messages(user, "capybaras") == [again["reply"]["id"]]


async def test_a_card_is_found_by_its_title_and_its_summary(
    someone: Someone, behind: "asyncpg.Connection[Any]"
) -> None:
    user, admin = await someone("ann"), await someone("admin", role="admin")
    await user.http.get("/api/conversations")
    briefing = {
        "agent_id": "assistant",
        "user_id": user.name,
        "title": "代码返工率50%",
        "summary": "Rework has risen 最近7天",
        "priority": "P1",
        "briefing_type": "alert",
    }
    posted = (await admin.http.post("/briefings", json=briefing)).json()
    started = await user.http.post(
        f"/briefings/{posted['id']}/actions", json={"action": "start_conversation"}
    )
    await indexed(behind, user)
    for q, shown in (("返工率", ["返工率"]), ("risen", ["risen"]), ("最近", ["最近"])):
        [hit] = (await search(user, q))["results"]
        assert hit["message_id"] == started.json()["message_id"]
        assert (hit["content_type"], hit["role"]) == ("briefing_card", "system")
        assert [hit["excerpt"][first:last] for first, last in hit["highlights"]] == shown
    assert hit["excerpt"] == "代码返工率50%\nRework has risen 最近7天"
