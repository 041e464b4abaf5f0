"""The signing secret of a data directory, made once."""

import os
import secrets
from pathlib import Path


def read_secret(data_dir: Path) -> str | None:
    """The secret of this data directory, or None before its first start."""
    try:
        return (data_dir / "secret").read_text("ascii").strip() or None
    except FileNotFoundError:
        return None


def make_secret(data_dir: Path) -> str:
    """The secret of this data directory, made if there is none; whole or absent after a crash."""
    existing = read_secret(data_dir)
    if existing:
        return existing
    made, draft = secrets.token_urlsafe(48), data_dir / "secret.new"
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="ascii") as stream:
        stream.write(made + "\n")
        stream.flush()
        os.fsync(file)
    draft.replace(data_dir / "secret")
    return made
