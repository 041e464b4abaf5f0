"""What makes up for every loss: wake-ups nobody got, ends nobody published. What can wait: erasing, indexing."""

from datetime import timedelta
from uuid import UUID

from tertulia import logs, metrics
from tertulia.core.errors import Unavailable
from tertulia.core.model import Owner
from tertulia.events.log import EventLog, session_log, user_log
from tertulia.queue.consumer import Consumer
from tertulia.queue.outbox import Outbox, stored_terminal
from tertulia.queue.publisher import Publisher
from tertulia.store.database import Database

_log = logs.get("sweeper")
_BATCH = 500
_SLICE = 1000  # messages erased in one transaction
_INDEXED = 20  # of the longest texts so many take seconds
_KEY_AGE = timedelta(hours=24)
_BEHIND = timedelta(minutes=1)


class Sweeper:
    """Runs on every worker; rows are locked, so that several do not do the same twice."""

    def __init__(
        self, database: Database, consumer: Consumer, publisher: Publisher, outbox: Outbox, events: EventLog, *,
        quiet: float, erase_after: float,
    ) -> None:  # fmt: skip
        self._database = database
        self._consumer = consumer
        self._publisher = publisher
        self._outbox = outbox
        self._events = events
        self._quiet = timedelta(seconds=quiet)
        self._erase_after = timedelta(seconds=erase_after)
        self._indexed = _INDEXED

    async def wake_forgotten(self) -> None:
        """Make wake-ups again for turns that wait though the stream has been read to its end."""
        quiet = _BEHIND if await self._consumer.undelivered() else self._quiet
        for row in await self._database.many("lost_wakeups", quiet=quiet, limit=_BATCH):
            metrics.LOST_WAKEUPS.inc()
            self._publisher.wake(
                Owner(row["tenant"], row["user_id"]), row["conversation_id"], row["message_id"]
            )

    async def publish_ends(self) -> None:
        """Publish ends that a worker wrote and did not get to publish."""
        for row in await self._database.many("unsent_terminals", age=timedelta(seconds=1), limit=_BATCH):
            owner = Owner(row["tenant"], row["user_id"])
            last = stored_terminal(row["terminal"])
            await self._outbox.send(
                owner, row["conversation_id"], row["turn_id"], row["attempt"], row["epoch"], last
            )
            metrics.OUTBOX_RESENT.inc()

    async def erase_deleted(self) -> None:
        """Erase what was deleted longer ago than one may change one's mind."""
        for row in await self._database.many("deleted_conversations", age=self._erase_after, limit=_BATCH):
            try:
                await self._erase(Owner(row["tenant"], row["user_id"]), row["id"])
            except (
                Unavailable
            ) as error:  # such as one that takes too long: the next ones need not wait for it
                _log.warning("conversation not erased", conversation=str(row["id"]), exc_info=error)

    async def _erase(self, owner: Owner, name: UUID) -> None:
        """Slice by slice; the logs go last but for the conversation itself, so that they are surely erased, once."""
        what = {"tenant": owner.tenant, "conversation": name}
        slices = {"age": self._erase_after, "limit": _SLICE}
        while (await self._database.one("erase_messages", **what, **slices))["more"]:
            pass
        await self._events.erase(session_log(owner.tenant, name))
        await self._events.erase(user_log(owner))  # it has the answers too
        if (await self._database.one("erase_conversation", **what))["erased"]:
            _log.info("conversation erased", tenant=owner.tenant, conversation=str(name))

    async def index(self) -> None:
        """Make findable what was said; one by one after a failure, for then so many were too much at once."""
        batch, self._indexed = self._indexed, 1
        while (await self._database.one("index_messages", limit=batch))["written"] == batch:
            pass
        self._indexed = _INDEXED

    async def forget_keys(self) -> None:
        await self._database.many("forget_keys", age=_KEY_AGE)
