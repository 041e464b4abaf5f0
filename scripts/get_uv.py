"""Put the pinned uv into .tools/ with nothing but Python: no pip, no venv, no certificates are needed.

The wheel is checked by its hash, so it does not matter where it comes from. With `--index`, only print the
package index that pip is configured for, if any.
"""

import base64
import configparser
import hashlib
import html.parser
import io
import os
import platform
import re
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

VERSION = "0.13.8"
TARGET = Path(__file__).resolve().parent.parent / ".tools" / "uv"
WHEELS = {
    ("Linux", "x86_64", "glibc"): (
        "manylinux_2_17_x86_64.manylinux2014_x86_64",
        "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984",
    ),
    ("Linux", "x86_64", "musl"): (
        "musllinux_1_1_x86_64",
        "29451c60f5e8b07403e0a175d5229efc36b0289b34143ff4aaa499a5dd52553a",
    ),
    ("Linux", "aarch64", "glibc"): (
        "manylinux_2_28_aarch64",
        "5337c30bb893b4f9ce0ceb921ba2da0d13f649da644f40ad3bef84083bef0203",
    ),
    ("Linux", "aarch64", "musl"): (
        "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
        "0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d",
    ),
    ("Darwin", "x86_64", ""): (
        "macosx_10_12_x86_64",
        "b7124ca1956ec2e476a1003ea5715a15f0266afaec37f4dc9c6972ba8183e6d1",
    ),
    ("Darwin", "arm64", ""): (
        "macosx_11_0_arm64",
        "62b6943c7fd64fac6854f780bea6e0359e5a5bc3241f83ee357bb38276afac49",
    ),
}


class Unavailable(Exception):
    """This way of getting the wheel does not work here."""


def main() -> None:
    if sys.argv[1:] == ["--index"]:
        print(next(iter(configured_indexes()), ""))
    elif sys.version_info < (3, 11):  # noqa: UP036  (it is here that an older one is turned away)
        sys.exit(f"Python 3.11 is needed, not {platform.python_version()}: `make PYTHON=...` names another.")
    elif not present():
        print(f"Getting uv {VERSION}…", file=sys.stderr)
        install(wheel())


def present() -> bool:
    noted = TARGET.with_name("uv-version")
    return TARGET.exists() and noted.exists() and noted.read_text() == VERSION


def install(content: bytes) -> None:
    """Unpack the program; it is whole, or not there."""
    TARGET.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        program = archive.read(f"uv-{VERSION}.data/scripts/uv")
    draft = TARGET.with_name(f"uv-{os.getpid()}.new")
    draft.write_bytes(program)
    draft.chmod(0o755)
    draft.replace(TARGET)
    TARGET.with_name("uv-version").write_text(VERSION)


def wheel() -> bytes:
    """The wheel for this machine, by pip if there is one, else from the configured or the public index."""
    failures: list[str] = []
    for way in (by_pip, by_urllib):
        try:
            return way()
        except Unavailable as failure:
            failures.append(str(failure))
    sys.exit(
        "uv could not be had:\n  "
        + "\n  ".join(failures)
        + "\nSet UV_DEFAULT_INDEX to a package index that this machine reaches,"
        + f" or put uv {VERSION} at {TARGET} and the text {VERSION} into uv-version beside it."
    )


def by_pip() -> bytes:
    """pip knows the proxies, certificates and indexes of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", folder, f"uv=={VERSION}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        found = list(Path(folder).glob("uv-*.whl"))
        if done.returncode or not found:
            said = done.stderr.strip().splitlines() or ["it found nothing"]
            raise Unavailable(f"pip: {said[-1]}")
        return verified(found[0].read_bytes(), {digest for _, digest in WHEELS.values()})


def by_urllib() -> bytes:
    libc = "" if platform.system() == "Darwin" else "glibc" if platform.libc_ver()[0] == "glibc" else "musl"
    machine = platform.system(), platform.machine(), libc
    if machine not in WHEELS:
        raise Unavailable(f"no wheel of uv is known for {' '.join(machine)}")
    tag, digest = WHEELS[machine]
    reasons: list[str] = []
    for index in configured_indexes() or [public_index()]:
        try:
            return verified(download(index, f"uv-{VERSION}-py3-none-{tag}.whl"), {digest})
        except (OSError, ValueError, Unavailable) as reason:
            reasons.append(f"{without_credentials(index)}: {reason}")
    raise Unavailable("\n  ".join(reasons))


def verified(content: bytes, digests: set[str]) -> bytes:
    if hashlib.sha256(content).hexdigest() not in digests:
        raise Unavailable("the wheel is not the one that was pinned (its SHA-256 differs)")
    return content


def configured_indexes() -> list[str]:
    """What the environment or pip's configuration names, the most specific first."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if os.environ.get(name):
            return [os.environ[name]]
    parser = configparser.RawConfigParser()
    parser.read(pip_configurations(), "utf-8")
    sections = [name for name in ("download", "install", "global") if parser.has_option(name, "index-url")]
    return [parser.get(name, "index-url") for name in sections][:1]


def pip_configurations() -> list[Path]:
    """pip's configuration files, the last winning."""
    home = Path(os.path.expanduser("~"))
    user = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    machine = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf")]
    own = [home / ".pip/pip.conf", home / "Library/Application Support/pip/pip.conf", user / "pip/pip.conf"]
    named = [Path(os.environ["PIP_CONFIG_FILE"])] if os.environ.get("PIP_CONFIG_FILE") else []
    return [*machine, *own, Path(sys.prefix, "pip.conf"), *named]


def public_index() -> str:
    """The index that everybody uses.

    Its address is not written in this project: where packages come from is for the machine to say. Where its
    configuration is silent, Python itself tells: `unittest.mock` names the home of its backport at its top.
    """
    from unittest import mock

    found = re.search(r"(https://[a-z.]+)/project/mock", Path(mock.__file__).read_text("utf-8"))
    if found is None:
        raise Unavailable("no package index is configured: set UV_DEFAULT_INDEX to the address of one")
    return found[1] + "/simple"


class Links(html.parser.HTMLParser):
    """The addresses on a page of an index."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.addresses += [value for name, value in attrs if name == "href" and value]


def download(index: str, name: str) -> bytes:
    page = index.rstrip("/") + "/uv/"
    links = Links()
    links.feed(fetch(page).decode("utf-8"))
    for address in links.addresses:
        if urllib.parse.unquote(urllib.parse.urlsplit(address).path).rpartition("/")[2] == name:
            return fetch(urllib.parse.urljoin(page, address))
    raise Unavailable(f"it has no {name}")


def fetch(address: str) -> bytes:
    request = urllib.request.Request(without_credentials(address), headers={"Accept": "text/html, */*;q=0.1"})
    secret = credentials(address)
    if secret:
        request.add_header("Authorization", "Basic " + base64.b64encode(secret.encode()).decode())
    try:
        return read(request, ssl.create_default_context(cafile=os.environ.get("PIP_CERT")))
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLCertVerificationError) or secret:
            raise
    # No certificates on this machine. The wheel is checked by its hash, so nobody can slip us another.
    return read(request, ssl._create_unverified_context())  # noqa: S323


def read(request: urllib.request.Request, context: ssl.SSLContext) -> bytes:
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        return answer.read()


def credentials(address: str) -> str:
    return urllib.parse.unquote(urllib.parse.urlsplit(address).netloc.rpartition("@")[0])


def without_credentials(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


if __name__ == "__main__":
    main()
