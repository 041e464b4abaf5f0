"""A process of ours with one guard taken out: `python patched.py unfenced-append serve …`. For tests only."""

import sys

from tertulia import cli
from tertulia.events import log
from tertulia.faces import sse
from tertulia.store.database import Database
from tertulia.valkey import Script


def unfenced_append() -> None:
    """Appends are taken from any epoch."""
    source = log.APPEND.source
    guard = "epoch < tonumber(known[3])"
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


if __name__ == "__main__":
    {"unfenced-append": unfenced_append, "impatient": impatient, "lively": lively}[sys.argv.pop(1)]()
    cli.main()
