"""The private directory for the sockets; its path must be short and plain."""

import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

from tertulia.embedded.account import Account
from tertulia.embedded.errors import EmbeddedError

_LONGEST = 103 - len("/.s.PGSQL.5432")  # the shortest limit among the systems (macOS)
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+")  # needs no quoting in a URL, a command line or a list


def private_directory(data_dir: Path, account: Account) -> Path:
    """A directory that only the account may enter: in the data directory where its path allows it.

    There no cleaner of temporary files reaches it and nobody can take its name first.
    """
    directory = next(path for path in _candidates(data_dir) if _fits(path))
    try:
        directory.mkdir(mode=0o700)
        account.give(directory)
    except FileExistsError:
        _verify(directory, account)
    return directory


def _candidates(data_dir: Path) -> tuple[Path, ...]:
    name = f"tertulia-{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]}"
    return data_dir / "run", Path(tempfile.gettempdir(), name).resolve(), Path("/tmp", name).resolve()  # noqa: S108  (verified below)


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= _LONGEST and _PLAIN.fullmatch(str(path)) is not None


def _verify(directory: Path, account: Account) -> None:
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (account.uid, os.getuid()):
        raise EmbeddedError(f"{directory} is not ours: remove it, or set TMPDIR to another directory.")
    if found.st_uid != account.uid:
        account.give(directory)
    if stat.S_IMODE(found.st_mode) != 0o700:
        directory.chmod(0o700)
