"""The file of a backup is its owner's alone, whatever somebody has put where it is written."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.embedded.serving import processes_of, tertulia
from tests.embedded.test_cli import sentence, served
from tests.embedded.test_cli import tertulia as tried

OTHERS = "What somebody else has written."


@pytest.fixture(scope="module")
async def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose server has been stopped."""
    directory = tmp_path_factory.mktemp("data")
    async with served(directory):
        pass
    assert processes_of(directory) == []
    return directory


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    """Where backups are written; all that happens there is readable for everybody else."""
    mask = os.umask(0)
    (tmp_path / "backups").mkdir()
    yield tmp_path / "backups"
    os.umask(mask)


def left(path: Path, what: str) -> Path | None:
    """Puts something there; yields where it leads to."""
    if what == "a file":
        path.write_text(OTHERS)
        return path
    elsewhere = path.parent.parent / "elsewhere"
    if what == "a link":
        elsewhere.write_text(OTHERS)
    path.symlink_to(elsewhere)
    return elsewhere


@pytest.mark.parametrize("what", ["a file", "a link", "a link to nothing"])
def test_a_backup_is_private_and_touches_nothing_that_lies_about_as_a_draft(
    what: str, data_dir: Path, folder: Path
) -> None:
    elsewhere = left(folder / ".backup.part", what)
    tertulia("backup", folder / "backup", "--data-dir", data_dir)
    assert (folder / "backup").lstat().st_mode == 0o100600
    assert (folder / "backup").read_bytes().startswith(b"PGDMP")
    assert sorted(path.name for path in folder.iterdir()) == [".backup.part", "backup"]
    assert [elsewhere.read_text()] == [OTHERS] if what != "a link to nothing" else not elsewhere.exists()


@pytest.mark.parametrize("what", ["a file", "a link"])
def test_a_backup_takes_the_place_of_what_has_its_name_and_does_not_follow_it(
    what: str, data_dir: Path, folder: Path
) -> None:
    elsewhere = left(folder / "backup", what)
    tertulia("backup", folder / "backup", "--data-dir", data_dir)
    assert (folder / "backup").lstat().st_mode == 0o100600
    assert [path.name for path in folder.iterdir()] == ["backup"]
    assert what == "a file" or elsewhere.read_text() == OTHERS


def test_a_backup_that_cannot_be_written_leaves_no_draft(data_dir: Path, folder: Path) -> None:
    (folder / "backup").mkdir()
    assert "backup" in sentence(tried("backup", folder / "backup", "--data-dir", data_dir))
    assert [path.name for path in folder.iterdir()] == ["backup"]
    assert list((folder / "backup").iterdir()) == []
