"""Structured logs: one line per event, JSON where no person is watching."""

import logging
import sys
from typing import Any, cast

import structlog


def configure(level: str, style: str) -> None:
    """Send all logs to standard error; `auto` is readable on a terminal and JSON elsewhere."""
    pretty = style == "console" or (style == "auto" and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer() if pretty else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")


def get(name: str) -> "structlog.stdlib.BoundLogger":
    """A logger that says where it speaks from."""
    return cast("structlog.stdlib.BoundLogger", structlog.get_logger(room=name))
