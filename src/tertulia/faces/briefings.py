"""`/briefings`: what agents tell a user unasked, and going from there into a conversation."""

from typing import Annotated, Literal
from uuid import UUID

from litestar import Response, delete, get, patch, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter
from msgspec import Struct

from tertulia import clock
from tertulia.core import briefings as core
from tertulia.core import errors
from tertulia.core.agents import is_agent_id
from tertulia.core.briefings import ActionKind, BriefingStatus, Draft
from tertulia.core.events import Briefed, CardAdded, Event, encode
from tertulia.core.model import Owner
from tertulia.events.log import EventLog, session_log, user_log
from tertulia.faces import body as reading
from tertulia.faces.body import IdempotencyKey
from tertulia.faces.gate import Signed
from tertulia.faces.openapi import BODY, refuses, takes
from tertulia.faces.paging import Cursor, Limit, at_moment, moment_cursor
from tertulia.store.briefings import Briefing, Briefings, Posted


class BriefingPage(Struct, frozen=True):
    """Newest first. `next` is the cursor of the following page."""

    briefings: list[Briefing]
    next: str | None = None


class Receipt(Struct, frozen=True):
    """The briefing is stored, and its reader is told. `posted` before: the same `dedupe_key` had been used."""

    id: UUID
    status: Literal["posted", "posted before"]


class Act(Struct, frozen=True, forbid_unknown_fields=True):
    """What to do with a briefing."""

    action: ActionKind


class Acted(Struct, frozen=True):
    """What came of it: for `start_conversation`, where the briefing is now talked about."""

    status: BriefingStatus
    conversation_id: UUID | None = None
    message_id: UUID | None = None


class Removed(Struct, frozen=True):
    status: Literal["deleted"] = "deleted"


_TAGS = ["briefings"]
_REFUSED = refuses(errors.BriefingNotFound)


@post(
    "/briefings",
    operation_class=takes(
        Draft,
        {
            "agent_id": "analyst",
            "user_id": "me",
            "title": "代码返工率50%",
            "summary": "最近7天的返工率明显升高",
            "priority": "P1",
            "briefing_type": "alert",
        },
    ),
    responses={
        **refuses(
            errors.Forbidden, errors.AgentNotFound, errors.UserNotFound, errors.IdempotencyConflict,
            *BODY,
        ),
        200: ResponseSpec(Receipt, generate_examples=False, description="It was posted before."),
    },
    tags=_TAGS,
    summary="Post a briefing (agents and admins)",
)  # fmt: skip
async def post_briefing(
    request: Signed, body: bytes, idempotency_key: IdempotencyKey = None
) -> Response[Receipt]:
    """Tell a user something unasked. An agent posts for itself, an admin for any agent; with a `dedupe_key` the
    user is told once, however often it is posted."""
    draft = core.checked(reading.decode(body, Draft))
    if request.user.role == "user":
        raise errors.MayNotPost
    agent_id = draft.agent_id
    if agent_id is None and request.user.role == "agent":
        agent_id = request.user.user
    if agent_id is None:
        raise errors.InvalidRequest("agent_id: say which agent it is from.")
    if not is_agent_id(agent_id):
        raise errors.AgentNotFound
    briefings: Briefings = request.app.state.briefings
    key = reading.key("POST /briefings", idempotency_key, body)
    posted = await briefings.post(request.user, agent_id, draft, key)
    if posted.repeated:
        return Response(Receipt(posted.id, "posted before"), status_code=200)
    _tell(request, draft, agent_id, posted)
    return Response(Receipt(posted.id, "posted"), status_code=201)


def _tell(request: Signed, draft: Draft, agent_id: str, posted: Posted) -> None:
    events: EventLog = request.app.state.events
    pushed = Briefed(
        posted.id,
        agent_id,
        draft.title,
        draft.summary,
        draft.priority,
        draft.briefing_type,
        posted.created_at,
    )
    log = user_log(Owner(request.user.tenant, draft.user_id))
    events.post(log, [encode(pushed)], once=f"briefing:{posted.id}")


@get("/briefings", responses=refuses(), tags=_TAGS, summary="List your briefings")
async def list_briefings(
    request: Signed,
    status: Annotated[BriefingStatus | None, Parameter(description="only those that stand so")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> BriefingPage:
    """What agents told you, newest first."""
    briefings: Briefings = request.app.state.briefings
    found = await briefings.page(
        request.user.owner, status=status, before=moment_cursor(cursor), limit=limit + 1
    )
    page = found[:limit]
    last = page[-1] if len(found) > limit else None
    return BriefingPage(page, at_moment(last.created_at, last.id) if last else None)


@get("/briefings/{briefing_id:str}", responses=_REFUSED, tags=_TAGS, summary="Look at a briefing")
async def read_briefing(request: Signed, briefing_id: str) -> Briefing:
    """One briefing; looking does not mark it as read."""
    briefings: Briefings = request.app.state.briefings
    return await briefings.get(request.user.owner, _name(briefing_id))


@patch(
    "/briefings/{briefing_id:str}/read",
    responses=_REFUSED,
    tags=_TAGS,
    summary="Mark a briefing as read",
)
async def mark_briefing_read(request: Signed, briefing_id: str) -> Briefing:
    """Note that and when you read it; doing it again changes nothing."""
    briefings: Briefings = request.app.state.briefings
    return await briefings.mark_read(request.user.owner, _name(briefing_id))


@post(
    "/briefings/{briefing_id:str}/actions",
    status_code=200,
    operation_class=takes(Act, {"action": "start_conversation"}),
    responses=refuses(errors.BriefingNotFound, errors.ActionNotOffered, *BODY),
    tags=_TAGS,
    summary="Do something with a briefing",
)
async def act_on_briefing(request: Signed, briefing_id: str, body: bytes) -> Acted:
    """`start_conversation` puts it as a card into your conversation with its agent, once however often you ask;
    `dismiss` puts it away; `view_report` and `custom` are noted if the briefing offers them."""
    briefings: Briefings = request.app.state.briefings
    owner, name = request.user.owner, _name(briefing_id)
    action = reading.decode(body, Act).action
    if action == "start_conversation":
        return await _start(request, briefings, owner, name)
    if action == "dismiss":
        settled = await briefings.settle(owner, name, "dismissed")
    else:
        if action not in core.offered((await briefings.get(owner, name)).actions):
            raise errors.ActionNotOffered
        settled = await briefings.settle(owner, name, "actioned")
    return Acted("dismissed" if action == "dismiss" else "actioned", settled.conversation_id)


async def _start(request: Signed, briefings: Briefings, owner: Owner, name: UUID) -> Acted:
    started = await briefings.start(owner, name)
    if started.added:
        events: EventLog = request.app.state.events
        data = CardAdded(started.message, name)
        event = Event(data.type, started.conversation, clock.now(), data)
        events.post(session_log(owner.tenant, started.conversation), [encode(event)])
    return Acted("actioned", started.conversation, started.message)


@delete(
    "/briefings/{briefing_id:str}",
    status_code=200,
    responses=_REFUSED,
    tags=_TAGS,
    summary="Delete a briefing",
)
async def delete_briefing(request: Signed, briefing_id: str) -> Removed:
    """Delete it for good. Cards that it became stay in their conversations."""
    briefings: Briefings = request.app.state.briefings
    await briefings.delete(request.user.owner, _name(briefing_id))
    return Removed()


def _name(text: str) -> UUID:
    name = reading.uuid(text)
    if name is None:
        raise errors.BriefingNotFound
    return name


ROUTES = [
    post_briefing, list_briefings, read_briefing, mark_briefing_read, act_on_briefing, delete_briefing,
]  # fmt: skip
