"""The conversations of all owners in this process, in the order of their age and of their deadlines."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tertulia.context.journal import Journal, Name, Reason
from tertulia.context.limits import Clock, ContextLimits


@dataclass(slots=True)
class Record:
    """A conversation: its times, and its messages as encoded."""

    created_at: datetime
    updated_at: datetime
    messages: deque[bytes]
    size: int = 0
    reach: int = 0  # how far into the durable log it goes


class Shelf:
    """Nothing here waits, so no two changes interleave."""

    def __init__(self, limits: ContextLimits, clock: Clock, journal: Journal) -> None:
        self._limits = limits
        self._ttl = timedelta(seconds=limits.ttl)
        self._clock = clock
        self._journal = journal
        self._by_age: OrderedDict[Name, Record] = OrderedDict()
        self._by_activity: OrderedDict[Name, Record] = OrderedDict()
        self._size = 0

    @property
    def usage(self) -> tuple[int, int]:
        """How many conversations there are, and the bytes of all their messages."""
        return len(self._by_age), self._size

    def find(self, name: Name) -> Record | None:
        record = self._by_age.get(name)
        return None if record is None or self._expired(record, self._clock()) else record

    def create(self, name: Name) -> None:
        if self.find(name) is None:
            self._create(name, self._clock())

    def reach(self, name: Name) -> int:
        """How far into the durable log the conversation goes; 0 for one that is empty or absent."""
        record = self.find(name)
        return record.reach if record else 0

    def append(self, name: Name, texts: Sequence[bytes], newest: int = 0) -> None:
        """Add to the conversation, made when it is absent, and start its time to live again."""
        now = self._clock()
        record = self._by_age.get(name)
        if record is None or self._expired(record, now):
            record = self._create(name, now)
        record.updated_at = now
        record.reach = max(record.reach, newest)
        self._by_activity.move_to_end(name)
        self._size += _push(record, texts)
        self._journal.counted(*self.usage)

    def remove(self, name: Name) -> None:
        if record := self._by_age.get(name):
            self._forget(name, Reason.EXPIRED if self._expired(record, self._clock()) else Reason.DELETED)

    def sweep(self) -> int:
        """Forget what has expired: the first by activity, up to one that lives."""
        now, swept = self._clock(), 0
        while self._by_activity:
            name, record = next(iter(self._by_activity.items()))
            if not self._expired(record, now):
                break
            self._forget(name, Reason.EXPIRED)
            swept += 1
        return swept

    def clear(self) -> None:
        self._by_age.clear()
        self._by_activity.clear()
        self._size = 0

    def _create(self, name: Name, now: datetime) -> Record:
        if name in self._by_age:
            self._forget(name, Reason.EXPIRED)
        self._make_room()
        record = Record(now, now, deque(maxlen=self._limits.messages))
        self._by_age[name] = self._by_activity[name] = record
        self._journal.counted(*self.usage)
        return record

    def _make_room(self) -> None:
        """Room for one more: what has expired goes first, then what was created first."""
        if len(self._by_age) >= self._limits.conversations:
            self.sweep()
        while len(self._by_age) >= self._limits.conversations:
            self._forget(next(iter(self._by_age)), Reason.EVICTED)

    def _forget(self, name: Name, reason: Reason) -> None:
        self._size -= self._by_age.pop(name).size
        del self._by_activity[name]
        self._journal.removed([(name, reason)])
        self._journal.counted(*self.usage)

    def _expired(self, record: Record, now: datetime) -> bool:
        return now - record.updated_at >= self._ttl


def _push(record: Record, texts: Sequence[bytes]) -> int:
    """Append, dropping the oldest beyond the limit, and say by how many bytes the record grew."""
    before = record.size
    for text in texts:
        if len(record.messages) == record.messages.maxlen:
            record.size -= len(record.messages[0])
        record.messages.append(text)
        record.size += len(text)
    return record.size - before
