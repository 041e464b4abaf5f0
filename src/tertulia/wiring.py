"""The composition root of everything but the faces: settings → stores → events → worker."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from msgspec import Struct

from tertulia.backlog import Backlog
from tertulia.context.limits import ContextLimits
from tertulia.context.open import open_stores
from tertulia.context.port import ContextStores
from tertulia.events.log import SCRIPTS, EventLog
from tertulia.events.relay import Relay
from tertulia.queue.publisher import Publisher
from tertulia.settings import Settings, SettingsError
from tertulia.store.database import Database
from tertulia.store.messages import Messages
from tertulia.store.notifications import Notifications
from tertulia.valkey import Pipeline, Valkey, connect


class Services(Struct, frozen=True):
    """What faces and workers are made of."""

    settings: Settings
    redis_url: str
    database: Database
    valkey: Valkey
    pipeline: Pipeline
    events: EventLog
    relay: Relay
    publisher: Publisher
    messages: Messages
    notifications: Notifications
    backlog: Backlog


@asynccontextmanager
async def services(settings: Settings) -> AsyncGenerator[Services]:
    """Connect to PostgreSQL and Redis as the settings say; everything is closed at the end."""
    if settings.database_url is None or settings.redis_url is None:
        raise SettingsError("TERTULIA_DATABASE_URL and TERTULIA_REDIS_URL must both be set here.")
    database = await Database.open(settings.database_url.get_secret_value(), settings.database_pool)
    valkey = connect(settings.redis_url.get_secret_value())
    pipeline = Pipeline(valkey, *SCRIPTS)
    reading = Pipeline(valkey, *SCRIPTS)
    events = EventLog(pipeline, settings.event_log_length, reading, size=settings.event_log_bytes)
    relay = Relay(valkey, events)
    await relay.start()
    try:
        yield Services(
            settings=settings,
            redis_url=settings.redis_url.get_secret_value(),
            database=database,
            valkey=valkey,
            pipeline=pipeline,
            events=events,
            relay=relay,
            publisher=Publisher(pipeline),
            messages=Messages(database, settings.agent_id, settings.open_turns),
            notifications=Notifications(database),
            backlog=Backlog(database),
        )
    finally:
        await relay.stop()
        await pipeline.close()
        await reading.close()
        await valkey.aclose()
        await database.close()


def context_stores(settings: Settings, valkey: Valkey) -> ContextStores:
    """The hot context as the settings want it."""
    limits = ContextLimits(ttl=settings.context_ttl, conversations=settings.context_conversations)
    return open_stores(settings.context_store, limits, cast(Any, valkey))
