"""Named places at which a test can make this process die or stop, as `TERTULIA_FAILPOINTS=name=kill,other=stop`.

Without that variable a failpoint is one look-up in an empty dictionary.
"""

import os
import signal

_ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def _armed() -> dict[str, str]:
    text = os.environ.get("TERTULIA_FAILPOINTS", "")
    return dict(part.split("=", 1) for part in text.split(",") if part)


_points = _armed()


def reach(name: str) -> None:
    """Do what is armed for this place, once."""
    if _points and (action := _points.pop(name, None)):
        os.kill(os.getpid(), _ACTIONS[action])
