"""What agents tell users unasked: posted, pushed, listed, put away, and the way from there into a conversation."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from tests.scenarios.conftest import Someone, word
from tests.support.client import User
from tests.support.refusals import refused
from tests.support.standing import Pair, act, made_agent, paired, post

VIEW = {"label": "查看报告", "action": "view_report", "data": {"url": "https://example.org/r"}}


async def listed(user: User, **query: Any) -> list[str]:
    """The titles of one page."""
    response = await user.http.get("/briefings", params=query)
    assert response.status_code == 200, response.text
    return [briefing["title"] for briefing in response.json()["briefings"]]


async def seen(user: User, briefing: str) -> dict[str, Any]:
    response = await user.http.get(f"/briefings/{briefing}")
    assert response.status_code == 200, response.text
    return response.json()


async def conversations_of(database: asyncpg.Connection, pair: Pair) -> list[tuple[str, str]]:
    rows = await database.fetch("SELECT user_id, id FROM conversations WHERE agent_id = $1", pair.agent)
    return [(row["user_id"], str(row["id"])) for row in rows]


@pytest.mark.scenario("001", "First interaction creates conversation")
@pytest.mark.scenario("001", "Subsequent interactions reuse conversation")
async def test_the_first_click_makes_the_conversation_and_the_next_ones_use_it(
    someone: Someone, database: asyncpg.Connection
) -> None:
    pair = await paired(someone)
    first, second = await pair.brief(), await pair.brief("Review耗时超标")
    assert await conversations_of(database, pair) == []
    name = (await pair.start(first))["conversation_id"]
    assert await conversations_of(database, pair) == [(pair.reader.name, name)]
    assert (await pair.start(second))["conversation_id"] == name
    assert await conversations_of(database, pair) == [(pair.reader.name, name)]
    assert (await pair.standing())["id"] == name


@pytest.mark.scenario("001", "Briefing action creates conversation")
@pytest.mark.scenario("001", "Briefing card storage")
async def test_a_click_makes_the_briefing_a_card_of_the_conversation_that_is_answered(
    someone: Someone, database: asyncpg.Connection
) -> None:
    pair = await paired(someone)
    briefing = await pair.brief(
        "代码返工率50%", summary="最近7天...", priority="P1", briefing_type="alert", impact="高"
    )
    answer = await pair.start(briefing)
    (card,) = (await pair.messages(answer["conversation_id"]))["messages"]
    row = await database.fetchrow("SELECT * FROM messages WHERE id = $1", UUID(answer["message_id"]))
    content = {
        "title": "代码返工率50%", "summary": "最近7天...", "priority": "P1", "briefing_type": "alert", "impact": "高",
    }  # fmt: skip
    assert row is not None
    assert answer.keys() == {"status", "conversation_id", "message_id"}
    assert answer["status"] == "actioned"
    assert (card["id"], card["briefing_id"]) == (answer["message_id"], briefing)
    assert (card["role"], card["content_type"], card["agent_id"]) == ("system", "briefing_card", pair.agent)
    assert card["content"].items() > content.items()
    made = datetime.fromisoformat((await seen(pair.reader, briefing))["created_at"])
    assert datetime.fromisoformat(card["content"]["created_at"]) == made
    assert (row["role"], row["content_type"], str(row["briefing_id"])) == (
        "system",
        "briefing_card",
        briefing,
    )
    assert msgspec.json.decode(row["content"]) == card["content"]
    told = await seen(pair.reader, briefing)
    assert (told["status"], told["conversation_id"]) == ("actioned", answer["conversation_id"])
    assert await pair.start(briefing) == answer
    assert len((await pair.messages(answer["conversation_id"]))["messages"]) == 1


@pytest.mark.scenario("001", "Multiple briefings in one conversation")
async def test_three_briefings_of_one_agent_are_cards_of_the_same_conversation(someone: Someone) -> None:
    pair = await paired(someone)
    briefings = [await pair.brief(title) for title in ("返工率50%", "Review耗时超标", "测试覆盖率下降")]
    names = {(await pair.start(briefing))["conversation_id"] for briefing in briefings}
    cards = (await pair.messages(names.pop()))["messages"]
    assert names == set()
    assert [card["briefing_id"] for card in cards] == briefings
    assert [card["content"]["title"] for card in cards] == ["返工率50%", "Review耗时超标", "测试覆盖率下降"]
    assert {card["content_type"] for card in cards} == {"briefing_card"}


async def test_agents_post_for_themselves_admins_for_any_agent_and_users_not_at_all(someone: Someone) -> None:
    pair = await paired(someone)
    other = await made_agent(pair.admin)
    agent = User(pair.admin.url, pair.agent, role="agent")
    to = {"user_id": pair.reader.name}
    assert (await post(agent, title="by itself", **to)).status_code == 201
    assert (await post(agent, title="in its name", agent_id=pair.agent, **to)).status_code == 201
    assert (await post(pair.admin, title="of another", agent_id=other, **to)).status_code == 201
    refused(await post(agent, title="x", agent_id=other, **to), 403, "FORBIDDEN")
    refused(await post(pair.reader, title="x", agent_id=pair.agent, **to), 403, "FORBIDDEN")
    refused(await post(pair.admin, title="x", **to), 400, "INVALID_REQUEST")
    await agent.http.aclose()
    found = (await pair.reader.http.get("/briefings")).json()["briefings"]
    assert [(each["title"], each["agent_id"]) for each in found] == [
        ("of another", other),
        ("in its name", pair.agent),
        ("by itself", pair.agent),
    ]


async def test_a_briefing_needs_a_user_and_an_agent_of_the_posters_tenant(someone: Someone) -> None:
    pair, elsewhere = await paired(someone), await paired(someone, tenant="globex")
    for reader in (word("nobody"), elsewhere.reader.name):
        answer = await post(pair.admin, title="x", agent_id=pair.agent, user_id=reader)
        refused(answer, 404, "USER_NOT_FOUND")
    for agent in (word("nobody"), elsewhere.agent):
        answer = await post(pair.admin, title="x", agent_id=agent, user_id=pair.reader.name)
        refused(answer, 404, "AGENT_NOT_FOUND")
    stranger = User(pair.admin.url, elsewhere.agent, role="agent")
    refused(await post(stranger, title="x", user_id=pair.reader.name), 404, "AGENT_NOT_FOUND")
    await stranger.http.aclose()
    assert await listed(pair.reader) == await listed(elsewhere.reader) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"title": "字" * 101},
        {"title": " "},
        {"title": "a\x00b"},
        {"summary": ""},
        {"summary": "x" * 5001},
        {"priority": "P3"},
        {"briefing_type": "gossip"},
        {"actions": [{"label": "Go", "action": "explode"}]},
        {"actions": [VIEW] * 21},
        {"context_data": {"x": "y" * 66_000}},
        {"dedupe_key": "k" * 201},
        {"colour": "red"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_briefing_that_cannot_be_one_is_refused(ann: User, wrong: dict[str, Any]) -> None:
    async with User(ann.url, "boss", role="admin") as admin:
        draft: dict[str, Any] = {"title": "t", "agent_id": "assistant", "user_id": "ann"}
        refused(await post(admin, **draft | wrong), 400, "INVALID_REQUEST")


async def test_a_title_of_a_hundred_characters_and_a_repetition_of_every_part_is_kept(
    someone: Someone,
) -> None:
    pair = await paired(someone)
    draft = {
        "title": "字" * 100, "summary": "s" * 5000, "priority": "P0", "briefing_type": "action", "impact": "wide",
        "actions": [VIEW], "context_data": {"a": [1, None]}, "importance_score": 0.75,
    }  # fmt: skip
    kept = await seen(pair.reader, await pair.brief(**draft))
    assert kept.items() > (draft | {"agent_id": pair.agent, "status": "new", "read_at": None}).items()


async def test_a_dedupe_key_tells_a_user_once_however_often_and_at_once_it_is_posted(
    someone: Someone,
) -> None:
    pair, other = await paired(someone), await someone("other")
    await other.http.get("/briefings")
    draft = {"agent_id": pair.agent, "dedupe_key": word("once")}
    async with pair.reader.socket() as socket:
        mine = {"title": "x", "user_id": pair.reader.name, **draft}
        answers = await asyncio.gather(*(post(pair.admin, **mine) for _ in range(10)))
        answers.append(await post(pair.admin, **mine | {"title": "another text"}))
        pushed = await socket.until("briefing")
        last = await pair.brief("last")
        assert (await socket.until("briefing"))["id"] == last
    assert sorted(answer.status_code for answer in answers) == [200] * 10 + [201]
    assert {answer.json()["id"] for answer in answers} == {pushed["id"]}
    assert {answer.json()["status"] for answer in answers} == {"posted", "posted before"}
    assert await listed(pair.reader) == ["last", "x"]
    assert (await post(pair.admin, title="x", user_id=other.name, **draft)).status_code == 201
    unlike = draft | {"agent_id": await made_agent(pair.admin)}
    assert (await post(pair.admin, title="x", user_id=pair.reader.name, **unlike)).status_code == 201


async def test_an_idempotency_key_gives_the_first_answer_again_and_another_body_is_a_conflict(
    someone: Someone,
) -> None:
    pair, key = await paired(someone), word("key")
    draft = {"agent_id": pair.agent, "user_id": pair.reader.name}
    first, again = [await post(pair.admin, key=key, title="x", **draft) for _ in range(2)]
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    refused(await post(pair.admin, key=key, title="y", **draft), 409, "IDEMPOTENCY_KEY_REUSED")
    assert await listed(pair.reader) == ["x"]


async def test_briefings_are_listed_newest_first_by_status_in_pages_that_miss_and_repeat_nothing(
    someone: Someone,
) -> None:
    pair = await paired(someone)
    made = [await pair.brief(f"b{number}") for number in range(7)]
    await pair.start(made[1])
    await act(pair.reader, made[3], "dismiss")
    await pair.reader.http.patch(f"/briefings/{made[5]}/read")
    found, sizes, query = [], [], {"limit": 2, "status": "new"}
    while True:
        page = (await pair.reader.http.get("/briefings", params=query)).json()
        found += [each["title"] for each in page["briefings"]]
        sizes.append(len(page["briefings"]))
        if not page.get("next"):
            break
        query["cursor"] = page["next"]
    assert (found, sizes) == (["b6", "b4", "b2", "b0"], [2, 2])
    assert await listed(pair.reader, status="actioned") == ["b1"]
    assert await listed(pair.reader, status="dismissed") == ["b3"]
    assert await listed(pair.reader, status="read") == ["b5"]
    assert await listed(pair.reader) == [f"b{number}" for number in range(6, -1, -1)]
    for wrong in ({"status": "lost"}, {"cursor": "nonsense"}, {"limit": 0}, {"limit": 201}):
        refused(await pair.reader.http.get("/briefings", params=wrong), 400, "INVALID_REQUEST")


async def test_marking_as_read_notes_when_and_takes_nothing_back(someone: Someone) -> None:
    pair = await paired(someone)
    briefing, acted = await pair.brief(), await pair.brief()
    assert (await seen(pair.reader, briefing))["status"] == "new"
    first, again = [await pair.reader.http.patch(f"/briefings/{briefing}/read") for _ in range(2)]
    assert (first.status_code, first.json()["status"]) == (200, "read")
    assert again.json() == first.json() == await seen(pair.reader, briefing)
    assert abs(datetime.now(UTC) - datetime.fromisoformat(first.json()["read_at"])) < timedelta(seconds=5)
    await pair.start(acted)
    read = (await pair.reader.http.patch(f"/briefings/{acted}/read")).json()
    assert (read["status"], read["read_at"]) == ("actioned", (await seen(pair.reader, acted))["read_at"])


async def test_a_report_is_viewed_only_where_it_is_offered_and_anything_can_be_dismissed(
    someone: Someone,
) -> None:
    pair = await paired(someone)
    offering, plain = await pair.brief(actions=[VIEW]), await pair.brief()
    viewed = await act(pair.reader, offering, "view_report")
    assert (viewed.status_code, viewed.json()["status"]) == (200, "actioned")
    assert (await seen(pair.reader, offering))["status"] == "actioned"
    for action in ("view_report", "custom"):
        refused(await act(pair.reader, plain, action), 400, "ACTION_NOT_OFFERED")
    refused(await act(pair.reader, plain, "explode"), 400, "INVALID_REQUEST")
    assert (await seen(pair.reader, plain))["status"] == "new"
    assert (await act(pair.reader, plain, "dismiss")).json()["status"] == "dismissed"
    assert (await seen(pair.reader, plain))["status"] == "dismissed"


@pytest.mark.scenario("001", "Briefing reference in message")
async def test_a_deleted_briefing_leaves_its_card_with_all_that_it_said(someone: Someone) -> None:
    pair = await paired(someone)
    briefing = await pair.brief()
    name = (await pair.start(briefing))["conversation_id"]
    (before,) = (await pair.messages(name))["messages"]
    assert (await pair.reader.http.delete(f"/briefings/{briefing}")).json() == {"status": "deleted"}
    assert (await pair.messages(name))["messages"] == [before | {"briefing_id": None}]
    refused(await pair.reader.http.get(f"/briefings/{briefing}"), 404, "BRIEFING_NOT_FOUND")
    refused(await pair.reader.http.delete(f"/briefings/{briefing}"), 404, "BRIEFING_NOT_FOUND")
    refused(await act(pair.reader, briefing, "start_conversation"), 404, "BRIEFING_NOT_FOUND")


async def test_a_briefing_is_its_readers_alone(someone: Someone) -> None:
    pair, ann = await paired(someone), await someone("ann")
    namesake, briefing = User(ann.url, pair.reader.name, "globex"), await pair.brief()
    for stranger in (ann, pair.admin, namesake):
        for name in (briefing, uuid4(), "nonsense"):
            for method, path in (("GET", ""), ("PATCH", "/read"), ("DELETE", "")):
                answer = await stranger.http.request(method, f"/briefings/{name}{path}")
                refused(answer, 404, "BRIEFING_NOT_FOUND")
            for action in ("start_conversation", "dismiss", "view_report"):
                refused(await act(stranger, str(name), action), 404, "BRIEFING_NOT_FOUND")
        assert await listed(stranger) == []
    await namesake.http.aclose()
    assert (await seen(pair.reader, briefing))["status"] == "new"


async def test_a_briefing_is_pushed_to_its_reader_and_its_card_to_those_who_watch_the_session(
    someone: Someone,
) -> None:
    pair, ann = await paired(someone), await someone("ann")
    session = (await pair.standing())["sessionId"]
    async with pair.reader.socket() as here, pair.reader.socket() as watching, ann.socket() as elsewhere:
        await watching.subscribe(session)
        await watching.until("subscribed")
        briefing = await pair.brief("返工率50%", summary="最近7天", priority="P1", briefing_type="alert")
        pushed = await here.until("briefing")
        started = await pair.start(briefing)
        card = await watching.until("conversation:briefing_card")
        await pair.start(briefing)
        await pair.say(started["conversation_id"], "Hi")
        await watching.until("turn_end")
        await here.until("message")
        await elsewhere.say(type="ping")
        await elsewhere.until("pong")
    assert {k: v for k, v in pushed.items() if k not in ("cursor", "created_at")} == {
        "type": "briefing", "topic": "user", "id": briefing, "agent_id": pair.agent, "title": "返工率50%",
        "summary": "最近7天", "priority": "P1", "briefing_type": "alert", "status": "new",
    }  # fmt: skip
    assert card["conversationId"] == started["conversation_id"]
    assert card["data"] == {"messageId": started["message_id"], "briefingId": briefing}
    kinds = [frame["type"] for frame in watching.seen]
    assert kinds.count("conversation:briefing_card") == kinds.count("briefing") == 1
    assert [frame["type"] for frame in here.seen] == ["connected", "briefing", "message"]
    assert [frame["type"] for frame in elsewhere.seen] == ["connected", "pong"]
