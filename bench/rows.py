"""What a measurement yields: what was measured, how much, what it may be, and whether it is."""

from typing import Any

Row = dict[str, Any]
ROUNDS = 5


def row(
    case: str, what: str, value: float, unit: str, limit: float | None = None, *, least: bool = False
) -> Row:
    holds = None if limit is None else (value >= limit if least else value <= limit)
    return {
        "case": case,
        "what": what,
        "value": value,
        "unit": unit,
        "limit": limit,
        "least": least,
        "holds": holds,
    }
