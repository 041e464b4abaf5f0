"""A data directory of which nothing is left, whatever a test did."""

import tempfile
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from tests.embedded.serving import processes_of


@pytest.fixture
def data_dir() -> Generator[Path]:
    """Not in pytest's own folder, which another run of pytest as root closes to the user of the services."""
    with tempfile.TemporaryDirectory(prefix="te-", ignore_cleanup_errors=True) as name:
        directory = Path(name).resolve() / "data"
        yield directory
        left = processes_of(directory)
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=5)
