"""What an operator may decide, and the page that says so."""

from pathlib import Path

from tertulia.settings import Settings

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
ELSEWHERE = {"google_api_key"}  # named with the models


def test_every_setting_is_on_the_page_for_operators_and_no_other() -> None:
    table = OPERATIONS.read_text("utf-8").partition("| setting |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = {name.strip(" `") for row in rows for name in row.partition("(")[0].split(",")}
    assert named == {name.upper() for name in Settings.model_fields.keys() - ELSEWHERE}
