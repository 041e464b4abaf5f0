"""What a turn is shown of the log: the newest messages before its own, as the log was when it first started."""

from collections.abc import AsyncGenerator
from uuid import UUID

import asyncpg
import pytest

from tertulia.core.model import OpenTurns, Owner
from tertulia.embedded import Services
from tertulia.store.database import Database
from tertulia.store.messages import Messages
from tests.store.conftest import address

CONVERSATION = "00000000-0000-4000-8000-000000000001"
# Three questions; when the third began to be answered, the second was tried again and got its answer.
LOG = f"""
    INSERT INTO users (tenant, id) VALUES ('acme', 'ann');
    INSERT INTO conversations (tenant, id, user_id, session_id) VALUES ('acme', '{CONVERSATION}', 'ann', 's');
    INSERT INTO messages (tenant, id, conversation_id, seq, trigger_seq, user_id, session_id, role, content_type,
                          content)
    SELECT 'acme', gen_random_uuid(), '{CONVERSATION}', seq, trigger_seq, 'ann', 's', role, 'text', to_jsonb(said)
      FROM (VALUES (1, 1, 'user', 'q1'), (2, 2, 'user', 'q2'), (3, 3, 'user', 'q3'), (4, 2, 'assistant', 'a2'))
           AS log (seq, trigger_seq, role, said)
"""


@pytest.fixture
async def messages(migrated: str, backends: Services) -> AsyncGenerator[Messages]:
    """The log as the server reads it."""
    postgres = await asyncpg.connect(address(backends, "postgres", migrated))
    await postgres.execute(LOG)
    await postgres.close()
    database = await Database.open(address(backends, "tertulia", migrated), 2)
    yield Messages(database, "assistant", OpenTurns(20, 100))
    await database.close()


@pytest.mark.parametrize(
    ("limit", "first_started", "later_started"),
    [(20, ["q1", "q2"], ["q1", "q2", "a2"]), (2, ["q1", "q2"], ["q2", "a2"]), (1, ["q2"], ["a2"])],
)
async def test_an_answer_that_came_after_a_turn_had_started_is_not_shown_to_it_nor_takes_the_place_of_what_is(
    limit: int, first_started: list[str], later_started: list[str], messages: Messages
) -> None:
    """`later_started` is what it would have seen, had it started after that answer."""

    async def shown(until: int) -> list[object]:
        owner = Owner("acme", "ann")
        found = await messages.window(owner, UUID(CONVERSATION), until, trigger=3, limit=limit)
        return [message.content for message in found]

    assert await shown(until=3) == first_started
    assert await shown(until=4) == later_started
