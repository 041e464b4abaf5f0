"""One attempt at one turn: answer it, write its end once, publish the end."""

import asyncio
import time
from typing import Any, Literal
from uuid import UUID

from tertulia import clock, failpoints, ids, logs, metrics
from tertulia.agents.registry import Agents
from tertulia.context.recall import Recall
from tertulia.core import errors
from tertulia.core.events import encode
from tertulia.core.model import TurnStatus
from tertulia.core.statuses import http_status
from tertulia.core.turns import Answer, Ending, Terminal, Turn, aborted, asked, asked_once, terminal
from tertulia.events.log import EventLog, session_log
from tertulia.queue.outbox import Outbox
from tertulia.store.turns import Turns, Written
from tertulia.worker.stream import LeaseLost, TurnStream

_log = logs.get("worker")

_UNWRITABLE = Ending(TurnStatus.FAILED, error=errors.AgentError())

Reason = Literal["abort", "lost", "drain"]


class Attempt:
    """A turn that is being worked on here. `stop` ends the agent's work; why, decides what is written."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.reason: Reason | None = None
        self.task: asyncio.Task[Answer] | None = None

    def stop(self, reason: Reason) -> None:
        self.reason = self.reason or reason
        if self.task:
            self.task.cancel()


class Runner:
    """Runs attempts; every way out of one is an `Ending`, except losing the lease, which writes nothing."""

    def __init__(
        self, agents: Agents, recall: Recall, turns: Turns, events: EventLog, outbox: Outbox, *,
        timeout: float, attempts: int, patience: float,
    ) -> None:  # fmt: skip
        self._agents = agents
        self._recall = recall
        self._turns = turns
        self._events = events
        self._outbox = outbox
        self._timeout = timeout
        self._attempts = attempts
        self._patience = patience

    async def run(self, attempt: Attempt) -> bool | None:
        """Bring the turn to its end; True when the conversation has more, None when it is no longer ours."""
        turn, began = attempt.turn, time.monotonic()
        stream = TurnStream(turn, self._events, self._turns, lambda: attempt.stop("lost"))
        self._show(turn)
        metrics.IN_QUEUE.observe(max(0.0, (clock.now() - turn.queued_at).total_seconds()))
        reply = ids.row_id()
        ending = await self._ending(attempt, stream, reply)
        await stream.settle()
        if ending is None or attempt.reason == "lost":
            return None
        stream.note(seconds=round(time.monotonic() - began, 4))
        if stream.first_word is not None:
            stream.note(firstWord=round(stream.first_word, 4))
            metrics.FIRST_TOKEN.observe(stream.first_word)
        return await self._write(attempt, stream, ending)

    def _show(self, turn: Turn) -> None:
        """The message, before its answer, if whoever accepted it has not come to that."""
        if not turn.aborting:
            event = asked(turn.conversation, turn.message, turn.id, turn.content, turn.said_at)
            log = session_log(turn.owner.tenant, turn.conversation)
            self._events.post(log, [encode(event)], asked_once(turn.message))

    async def _ending(self, attempt: Attempt, stream: TurnStream, reply: UUID) -> Ending | None:
        turn = attempt.turn
        if turn.aborting:
            return aborted(turn.partial or "", reply)
        if turn.tries > self._attempts:
            return Ending(TurnStatus.FAILED, error=errors.TurnPoisoned())
        try:
            answer = await self._answer(attempt, stream, reply)
        except (LeaseLost, asyncio.CancelledError):
            if attempt.reason == "abort":
                return aborted(stream.said, reply)
            if attempt.reason is None and (task := asyncio.current_task()) and task.cancelling():
                raise
            if attempt.reason == "drain":
                await self._turns.release(turn)
            return None
        except errors.TurnError as error:
            return Ending(TurnStatus.FAILED, error=error, partial=stream.said or None)
        except errors.Unavailable:
            return None  # without its database a turn cannot go on; it will be taken again
        except Exception as error:  # noqa: BLE001  a bug must end in a visible failure, not in a silent turn
            _log.error("turn broke", turn=str(turn.id), exc_info=error)
            return Ending(TurnStatus.FAILED, error=errors.AgentError())
        return Ending(TurnStatus.DONE, answer, reply)

    async def _answer(self, attempt: Attempt, stream: TurnStream, reply: UUID) -> Answer:
        turn = attempt.turn
        agent = await self._agents.of(turn)
        stream.start(reply, agent.model_name)
        history = await self._recall.before(turn, agent.window)
        steps = await self._turns.steps(turn) if turn.attempt > 1 else []
        attempt.task = asyncio.create_task(agent.answer(turn, history, steps, stream))
        if attempt.reason:
            attempt.task.cancel()
        try:
            async with asyncio.timeout(self._timeout):
                return await attempt.task
        except TimeoutError:
            raise errors.GenerationTimeout from None

    async def _write(self, attempt: Attempt, stream: TurnStream, ending: Ending) -> bool | None:
        turn = attempt.turn
        failpoints.reach("worker.before_commit")
        last = terminal(turn, ending, _status(ending), clock.now())
        written = await self._finish(turn, ending, last, stream.facts)
        if written.outcome in ("aborting", "unwritable"):
            said = ending.answer.text if ending.answer else stream.said
            ending = (
                aborted(said, ending.reply or ids.row_id()) if written.outcome == "aborting" else _UNWRITABLE
            )
            last = terminal(turn, ending, _status(ending), clock.now())
            written = await self._finish(turn, ending, last, stream.facts)
        if written.outcome != "ended":
            metrics.FENCED.inc()
            _log.warning("late end refused", turn=str(turn.id), attempt=turn.attempt)
            return None
        failpoints.reach("worker.after_commit")
        await self._outbox.publish(turn, last)
        if written.hidden:
            await self._recall.forget(turn)
        else:
            await self._recall.add(turn, ending.answer, written.seq, clock.now())
        _report(turn, ending, stream.facts)
        return written.more

    async def _finish(self, turn: Turn, ending: Ending, last: Terminal, facts: dict[str, Any]) -> Written:
        """Write the end, again and again while the database is away: the write knows whether it happened before."""
        patience = time.monotonic() + self._patience
        while True:
            try:
                return await self._turns.finish(turn, ending, last, facts)
            except errors.Unavailable:
                if time.monotonic() > patience:
                    return Written("stale")
                await asyncio.sleep(0.2)
            except Exception as error:  # noqa: BLE001  an end that cannot be written must not be tried for ever
                _log.error("end not writable", turn=str(turn.id), exc_info=error)
                return Written("unwritable")


def _status(ending: Ending) -> int:
    return http_status(ending.error) if ending.error else 200


def _report(turn: Turn, ending: Ending, facts: dict[str, Any]) -> None:
    metrics.ENDED.labels(ending.status.value).inc()
    metrics.TURN.observe(facts["seconds"])
    told = {
        "turn": str(turn.id), "message": str(turn.message), "conversation": str(turn.conversation),
        "tenant": turn.owner.tenant, "user": turn.owner.user, "attempt": turn.attempt,
        "status": ending.status.value, "model": facts.get("model"), "usage": facts.get("usage"),
        "seconds": facts["seconds"], "first_word": facts.get("firstWord"),
    }  # fmt: skip
    if ending.error and ending.status is TurnStatus.FAILED:
        cause = ending.error.__cause__
        _log.error("turn failed", code=ending.error.code, cause=repr(cause)[:500] if cause else None, **told)
    else:
        _log.info("turn ended", **told)
