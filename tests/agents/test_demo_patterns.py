"""The demo model looks for commands in whatever is said, and is done with it at once."""

import time

import pytest
from langchain_core.messages import HumanMessage

from tertulia.agents.demo import SLOW, TOOL, reply_to

BLANKS = {
    "line ends": "\n" * 9999 + "x",
    "spaces": " " * 9999,
    "tabs": "\t" * 9999,
    "lines of spaces": (" " * 99 + "\n") * 99,
    "line ends after a command": "/tool" + "\n" * 9994,
    "line ends after a number": "/slow 1" + "\n" * 9992,
}


@pytest.mark.parametrize("said", BLANKS.values(), ids=BLANKS.keys())
def test_blanks_do_not_keep_it_busy(said: str) -> None:
    began = time.monotonic()
    assert TOOL.findall(said) == []
    SLOW.search(said)
    SLOW.sub("", said)
    reply_to([HumanMessage(said)], ["present"])
    assert time.monotonic() - began < 0.2


@pytest.mark.parametrize("before", ["", " ", "\t", "Please\n", "\n\n  ", "Please\n\n\t "])
def test_a_command_is_found_on_a_line_of_its_own_however_it_is_indented(before: str) -> None:
    assert TOOL.findall(f"{before}/tool present {{}}") == [("present", "{}")]
    found = SLOW.search(f"{before}/slow 1.5 Hello")
    assert found is not None
    assert found[1] == "1.5"


def test_a_command_within_a_line_is_none() -> None:
    assert TOOL.findall("I say /tool present {}") == []
    assert SLOW.search("I say /slow 1") is None
