"""The measurements by name: each takes a stage and yields rows."""

from bench.cases.accepting import acceptance
from bench.cases.finding import finding
from bench.cases.reading import history
from bench.cases.sockets import sockets
from bench.cases.streams import streams
from bench.cases.turns import turns

CASES = {
    "a": acceptance, "b": turns, "d": sockets, "e": history, "g": streams, "h": finding,
}  # fmt: skip
