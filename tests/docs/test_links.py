"""Pages lead to what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_project_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_decision_is_in_the_list_of_decisions() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"\]\((\d{4}-[^)]+)\)", (folder / "README.md").read_text("utf-8"))
    assert listed == sorted(path.name for path in folder.glob("0*.md"))
