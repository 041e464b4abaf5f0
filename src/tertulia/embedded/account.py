"""Which user the services run as: PostgreSQL refuses to be root."""

import os
import pwd
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from tertulia import logs
from tertulia.embedded.errors import EmbeddedError

_NOBODY = 65534


class Spawn(TypedDict, total=False):
    """The arguments of `Popen` that change the user."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """The user whom the services run as; `foreign` when that is not ourselves."""

    uid: int
    gid: int
    foreign: bool

    @property
    def spawn(self) -> Spawn:
        return Spawn(user=self.uid, group=self.gid, extra_groups=[]) if self.foreign else Spawn()

    def give(self, path: Path) -> None:
        """Make the account the owner of what we have just made."""
        if self.foreign:
            os.chown(path, self.uid, self.gid)


def choose(database: Path) -> Account:
    """The owner of an existing database, else ourselves, else (for root) `nobody`."""
    owner = database.stat() if database.exists() else None
    if os.getuid() == 0:
        return Account(owner.st_uid, owner.st_gid, foreign=True) if owner and owner.st_uid else _nobody()
    if owner and owner.st_uid != os.getuid():
        raise EmbeddedError(
            f"The database in {database} belongs to uid {owner.st_uid}: "
            "start tertulia as root or as that user."
        )
    return Account(os.getuid(), os.getgid(), foreign=False)


def _nobody() -> Account:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return Account(_NOBODY, _NOBODY, foreign=True)
    return Account(entry.pw_uid % 2**32, entry.pw_gid % 2**32, foreign=True)


def take_over(account: Account, database: Path) -> None:
    """Give the account a database that root owns, as one copied back from a backup does."""
    if account.foreign and database.exists() and database.stat().st_uid != account.uid:
        for folder, _, files in os.walk(database):
            for path in (Path(folder), *(Path(folder, name) for name in files)):
                os.chown(path, account.uid, account.gid, follow_symlinks=False)


def open_the_way(account: Account, directories: Iterable[Path], programs: Iterable[Path]) -> None:
    """Let the account pass through the directories, and those on the way to them and the programs."""
    if not account.foreign:
        return
    programs = list(programs)
    ends = (*directories, *(program.parent for program in programs))
    wanted = {folder for end in ends for folder in (end, *end.parents)}
    opened = sorted(folder for folder in wanted if not _passable(account, folder))
    for folder in opened:
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IXOTH)
    if opened:
        paths = [str(folder) for folder in opened]
        logs.get("embedded").info("made directories traversable", uid=account.uid, mode="o+x", paths=paths)
    for program in programs:
        if not program.stat().st_mode & stat.S_IROTH:
            raise EmbeddedError(
                f"The user of uid {account.uid} may not read {program}: run `chmod -R o+rX {sys.prefix}`, "
                "or run tertulia as an ordinary user."
            )


def _passable(account: Account, folder: Path) -> bool:
    found = folder.stat()
    return found.st_uid == account.uid or bool(found.st_mode & stat.S_IXOTH)
