"""A process of ours with one part taken out or put in: `python patched.py unfenced-append serve …`. For tests only."""

import sys
from pathlib import Path
from typing import Any

from tertulia import cli
from tertulia.core.turns import Turn
from tertulia.events import log
from tertulia.faces import sse
from tertulia.store import group
from tertulia.store.database import Database
from tertulia.tools.port import Outcome
from tertulia.tools.present import Present
from tertulia.valkey import Script


def unfenced_append() -> None:
    """Appends are taken from any epoch."""
    source = log.APPEND.source
    guard = "epoch < newest"
    assert guard in source
    log.APPEND = Script(source.replace(guard, "false"))
    log.SCRIPTS = tuple(log.APPEND if script.source == source else script for script in log.SCRIPTS)


def impatient() -> None:
    """Statements may take two seconds, so that a test of the limit need not wait for the real one."""
    opened = Database.open.__func__
    opened.__defaults__ = tuple(2.0 if default == 15.0 else default for default in opened.__defaults__)
    assert 2.0 in opened.__defaults__


def lively() -> None:
    """Event streams show a sign of life five times a second."""
    assert sse._KEEP_ALIVE == 15.0
    sse._KEEP_ALIVE = 0.2


def patient() -> None:
    """Messages that are committed together wait for each other's locks for as long as it takes."""
    assert group._LOCK == "100ms"
    group._LOCK = None


class Charge:
    """A tool whose every run costs something: it writes its call's id into the file that it is given."""

    name = "charge"
    description = "Charge somebody."
    parameters = {"type": "object", "properties": {"file": {"type": "string"}}}  # noqa: RUF012
    repeatable = False

    async def run(self, _: Turn, call_id: str, arguments: dict[str, Any]) -> Outcome:
        with Path(arguments["file"]).open("a") as file:  # noqa: ASYNC230  (one line)
            file.write(f"{call_id}\n")
        return Outcome("Charged.", action={"type": self.name})


def charging() -> None:
    """Agents have a tool that must not be called twice."""
    from tertulia.worker import process  # which imports what others replace

    assert process.Present is Present
    process.Present = Charge


def charging_again() -> None:
    """The same tool, but said to be repeatable."""
    charging()
    Charge.repeatable = True


HOWS = {
    "unfenced-append": unfenced_append,
    "impatient": impatient,
    "lively": lively,
    "patient": patient,
    "charging": charging,
    "charging-again": charging_again,
}

if __name__ == "__main__":
    HOWS[sys.argv.pop(1)]()
    cli.main()
