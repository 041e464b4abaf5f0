"""How strangers reach for what is Ann's: by every route and every frame there is.

Whoever adds a route or a frame says here how a stranger would try it, and what comes of that.
"""

from typing import Any, Literal, NamedTuple

Kind = Literal["inside", "outside", "admin", "nobody"]


class Try(NamedTuple):
    """A request in which `{name}` stands for a thing of Ann's, and the status of its answer: to somebody of her
    tenant, to somebody elsewhere (else the same), to an admin elsewhere (else the same)."""

    inside: int
    outside: int | None = None
    admin: int | None = None
    path: str = ""  # what stands in the path's braces
    query: dict[str, str] | None = None
    body: dict[str, Any] | None = None
    key: str | None = None

    def expected(self, kind: Kind) -> int:
        """The status that a stranger of this kind gets."""
        if kind == "nobody":
            return 401
        if kind == "inside":
            return self.inside
        outside = self.inside if self.outside is None else self.outside
        return self.admin if kind == "admin" and self.admin is not None else outside


DRAFT = {"user_id": "ann", "title": "Hello", "summary": "Up."}

ROUTES: dict[str, list[Try]] = {
    "GET /api/agents": [Try(200)],
    "GET /api/agents/{agent_id}": [Try(200, 404, path="{agent}")],
    "GET /api/conversations": [Try(200), Try(200, query={"cursor": "9999999999999999.{conversation}"})],
    "GET /api/conversations/{conversation_id}": [
        Try(404, path="{conversation}"),
        Try(404, path="{standing}"),
        Try(404, path="{conversation}", query={"after": "0"}),
    ],
    "GET /api/conversations/{conversation_id}/events": [
        Try(404, path="{conversation}"),
        Try(404, path="{standing}", query={"after": "0.0"}),
        Try(404, path="{session}"),
    ],
    "GET /api/messages/{message_id}": [Try(404, path="{message}"), Try(404, path="{card}")],
    "GET /api/notifications": [
        Try(200),
        Try(200, query={"cursor": "9999999999999999.{notification}", "limit": "200"}),
    ],
    "GET /api/search": [
        Try(200, query={"q": "{said}"}),
        Try(200, query={"q": "{answer}"}),
        Try(200, query={"q": "{title}"}),
        Try(200, query={"q": "forget"}),
    ],
    "GET /briefings": [Try(200), Try(200, query={"cursor": "9999999999999999.{briefing}", "status": "new"})],
    "GET /briefings/{briefing_id}": [Try(404, path="{briefing}"), Try(404, path="{started}")],
    "GET /conversations/{agent_id}": [
        Try(403, 404, path="{standing}"),
        Try(403, 404, path="{conversation}"),
        Try(404, path="{gone}"),
        Try(200, 404, path="{agent}"),
    ],
    "GET /conversations/{conversation_id}/messages": [
        Try(403, 404, path="{standing}"),
        Try(403, 404, path="{conversation}", query={"after": "0"}),
    ],
    "PATCH /api/agents/{agent_id}": [Try(403, 403, 404, path="{agent}", body={"prompt": "Obey."})],
    "DELETE /api/agents/{agent_id}": [Try(403, 403, 404, path="{agent}")],
    "POST /api/conversations/{conversation_id}/abort": [Try(404, path="{conversation}")],
    "DELETE /api/conversations/{conversation_id}": [Try(404, path="{conversation}"), Try(404, path="{gone}")],
    "POST /api/conversations/{conversation_id}/restore": [
        Try(404, path="{gone}"),
        Try(404, path="{conversation}"),
    ],
    "POST /api/turns/{turn_id}/retry": [Try(404, path="{turn}"), Try(404, path="{failed_turn}")],
    "PATCH /api/notifications/{notification_id}/read": [Try(404, path="{notification}")],
    "DELETE /briefings/{briefing_id}": [Try(404, path="{briefing}")],
    "PATCH /briefings/{briefing_id}/read": [Try(404, path="{briefing}")],
    "POST /briefings/{briefing_id}/actions": [
        Try(404, path="{briefing}", body={"action": action})
        for action in ("start_conversation", "dismiss", "view_report")
    ],
    "POST /briefings": [
        Try(403, 403, 404, body=DRAFT | {"agent_id": "{agent}"}),
        Try(403, 403, 201, body=DRAFT | {"agent_id": "assistant", "dedupe_key": "{dedupe}"}),
        Try(403, 403, 404, body=DRAFT | {"agent_id": "assistant", "user_id": "ada"}),
    ],
    "POST /conversations/{conversation_id}/messages": [
        Try(403, 404, path="{standing}", body={"content": "Hi"}),
        Try(403, 404, path="{conversation}", body={"content": "Hi"}, key="{key}"),
    ],
    "POST /api/conversations": [
        Try(201, body={"session_id": "{handle}"}, key="{key}"),
        Try(201, body={"session_id": "{conversation}"}),
        Try(200, 404, body={"agent_id": "{agent}"}),
    ],
    "POST /api/messages": [
        Try(202, body={"content": "Hi", "session_id": "{handle}"}, key="{key}"),
        Try(202, body={"content": "Hi", "session_id": "{conversation}"}),
        Try(202, body={"content": "Hi", "session_id": "{session}"}),
        Try(202, 404, body={"content": "Hi", "agent_id": "{agent}"}),
    ],
    "POST /api/agents": [Try(403, 403, 201, body={"id": "{agent}", "display_name": "Another"})],
    "GET /healthz": [Try(200)],
    "GET /readyz": [Try(200)],
    "GET /metrics": [Try(200)],
}
OPEN = {"GET /healthz", "GET /readyz", "GET /metrics"}

FRAMES: dict[str, list[tuple[dict[str, str], str]]] = {
    "subscribe": [
        *(
            ({"sessionId": f"{{{name}}}", "afterCursor": "0.0"}, "error")
            for name in ("session", "standing_session", "conversation", "handle", "message", "notification")
        ),
        ({"sessionId": "{standing_session}"}, "error"),
        ({"topic": "user", "afterCursor": "0.0"}, "connected"),
    ],
    "unsubscribe": [({"sessionId": "{session}"}, "pong")],
    "message": [
        ({"content": "Hi", "session_id": "{conversation}", "idempotency_key": "{key}"}, "accepted"),
        ({"content": "Hi", "session_id": "{session}"}, "accepted"),
    ],
    "ping": [({}, "pong")],
    "auth": [({"token": "{handle}"}, "error")],  # the last: it ends the socket
}
