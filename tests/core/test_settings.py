"""What an operator may decide, and the page that says so."""

import os
from pathlib import Path

import pytest

from tertulia.settings import Settings, load

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
ELSEWHERE = {"google_api_key"}  # named with the models
SPECIFIED = {
    "context_ttl": 3600,
    "context_conversations": 1000,
    "context_window": 20,
    "message_chars": 10_000,
    "delete_seconds": 10,
}


def test_every_setting_is_on_the_page_for_operators_and_no_other() -> None:
    table = OPERATIONS.read_text("utf-8").partition("| setting |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = {name.strip(" `") for row in rows for name in row.partition("(")[0].split(",")}
    assert named == {name.upper() for name in Settings.model_fields.keys() - ELSEWHERE}


def test_who_sets_nothing_gets_what_the_specifications_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("TERTULIA_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    settings = load()
    assert {name: getattr(settings, name) for name in SPECIFIED} == SPECIFIED
