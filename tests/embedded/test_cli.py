"""The command line: what it prints, what it refuses, and how it says so."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import jwt
import pytest

from tertulia.embedded import Embedded, roles, running
from tertulia.store.migrate import migrate

SECRET = "a secret that is long enough to sign with"


def tertulia(*arguments: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command, run with these settings and no others."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("TERTULIA_", "GOOGLE_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "tertulia", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**clean, **settings},
    )


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that failed said, which is one line and no traceback."""
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    return lines[0]


@asynccontextmanager
async def served(data_dir: Path) -> AsyncGenerator[None]:
    """The services of a server that is up and migrated."""
    async with Embedded(data_dir) as services:
        await migrate(services.migration_url, roles.SERVER)
        yield


async def superuser(data_dir: Path, statement: str) -> object:
    found = running(data_dir)
    assert found
    connection = await asyncpg.connect(found.migration_url, user="postgres")
    try:
        return (
            await connection.fetchval(statement)
            if statement.startswith("SELECT")
            else await connection.execute(statement)
        )
    finally:
        await connection.close()


def test_the_version_is_that_of_the_package():
    assert tertulia("--version").stdout.count(".") == 2


def test_help_names_every_command():
    said = tertulia("--help").stdout
    assert all(
        f" {name} " in said for name in ("serve", "worker", "migrate", "token", "doctor", "backup", "restore")
    )


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        (["serve"], {"TERTULIA_PORT": "many"}, "TERTULIA_PORT: Input should be a valid integer"),
        (["serve", "--port", "99999"], {}, "TERTULIA_PORT: Input should be less than or equal to 65535"),
        (["serve"], {"TERTULIA_PROT": "1"}, "TERTULIA_PROT: there is no such setting"),
        (["serve"], {"TERTULIA_SECRET": "short"}, "TERTULIA_SECRET: needs at least 32 characters"),
        (["serve"], {"TERTULIA_REDIS_URL": "redis://x"}, "TERTULIA_DATABASE_URL must be set when"),
        (["serve"], {"TERTULIA_MODEL": "nonsense:x"}, "TERTULIA_MODEL: there is no provider 'nonsense'"),
        (["serve"], {"TERTULIA_MODEL": "gemini"}, "TERTULIA_MODEL: is written provider:model"),
        (["serve"], {"TERTULIA_MODEL": "openai:"}, "TERTULIA_MODEL: is written provider:model"),
        (["serve"], {"TERTULIA_MODEL": "google_genai:x"}, "TERTULIA_MODEL: google_genai:x needs a key"),
        (["serve"], {"TERTULIA_MODEL": "openai:gpt-5"}, "make add PACKAGE=langchain-openai"),
        (["serve"], {"TERTULIA_MODEL_BASE_URL": "not a url"}, "TERTULIA_MODEL_BASE_URL: is an address such"),
        (["serve"], {"TERTULIA_CLAIM_USER": ""}, "TERTULIA_CLAIM_USER: is the name of a claim"),
        (["serve"], {"TERTULIA_CLAIM_TENANT": "exp"}, "TERTULIA_CLAIM_TENANT: is the name of a claim"),
        (["serve"], {"TERTULIA_CLAIM_ROLE": "user_id"}, "must be three different claims"),
        (["serve"], {"TERTULIA_ALLOWED_ORIGINS": "chat"}, "TERTULIA_ALLOWED_ORIGINS: has origins such as"),
        (["serve"], {"TERTULIA_LEASE_SECONDS": "inf"}, "TERTULIA_LEASE_SECONDS: Input should be a finite"),
        (["serve"], {"TERTULIA_SETTINGS_FILE": "/nonexistent"}, "TERTULIA_SETTINGS_FILE: there is no file"),
        (["serve"], {"TERTULIA_SETTINGS_FILE": "/"}, "TERTULIA_SETTINGS_FILE: there is no file"),
        (["serve", "--host", "192.0.2.1"], {}, "Cannot listen on 192.0.2.1:8710: "),
        (["serve", "--host", "no such host"], {}, "Cannot listen on no such host:8710: "),
        (["worker"], {}, "A worker of its own needs TERTULIA_DATABASE_URL and TERTULIA_REDIS_URL"),
        (
            ["serve", "--port", "0", "--data-dir", "/dev/null/x"],
            {},
            "Cannot use the data directory /dev/null/x",
        ),
        (["token"], {}, "--user requires an argument"),
        (
            ["token", "--user", "ada", "--data-dir", "/nonexistent"],
            {},
            "There is no secret in /nonexistent yet",
        ),
        (
            ["token", "--user", "ada", "--ttl", "0d"],
            {"TERTULIA_SECRET": SECRET},
            "--ttl must be longer than nothing",
        ),
        (["token", "--user", "ada", "--ttl", "soon"], {"TERTULIA_SECRET": SECRET}, "soon"),
        (["token", "--user", "ada", "--ttl", "99999999999d"], {"TERTULIA_SECRET": SECRET}, "larger than"),
        (["token", "--user", ""], {"TERTULIA_SECRET": SECRET}, "--user and --tenant have 1 to 200"),
        (["token", "--user", "a\nb"], {"TERTULIA_SECRET": SECRET}, "--user and --tenant have 1 to 200"),
        (["token", "--user", "ada", "--role", "king"], {"TERTULIA_SECRET": SECRET}, "king"),
        (["backup", "file", "--data-dir", "/nonexistent"], {}, "There is no database in /nonexistent yet"),
        (["restore", "/dev/null"], {}, "Cannot read /dev/null as a backup"),
        (["dance"], {}, 'Unknown command "dance"'),
    ],
)
def test_what_a_person_can_mend_is_said_in_one_sentence(
    arguments: list[str], settings: dict[str, str], said: str
):
    assert said in sentence(tertulia(*arguments, **settings))


@pytest.mark.parametrize("text", [b"port = ", b"\xff\xfe", b"port = 'many'", b"prot = 1"])
def test_a_settings_file_that_cannot_be_meant_is_named(text: bytes, tmp_path: Path):
    file = tmp_path / "odd.toml"
    file.write_bytes(text)
    said = sentence(tertulia("serve", TERTULIA_SETTINGS_FILE=str(file)))
    assert str(file) in said or "TERTULIA_PORT" in said or "TERTULIA_PROT" in said


def test_settings_come_from_the_file_unless_the_environment_or_the_command_says_otherwise(tmp_path: Path):
    (tmp_path / "s.toml").write_text(f'secret = "{SECRET}"\nport = 1\nclaim_user = "sub"\nmodel = "gemini"')
    file = {"TERTULIA_SETTINGS_FILE": str(tmp_path / "s.toml")}
    assert "TERTULIA_MODEL" in sentence(tertulia("token", "--user", "ada", **file))
    done = tertulia("token", "--user", "ada", "--tenant", "acme", TERTULIA_MODEL="demo:", **file)
    claims = jwt.decode(done.stdout.strip(), SECRET, algorithms=["HS256"])
    assert (claims["sub"], claims["tenant_id"], claims["role"]) == ("ada", "acme", "user")


def test_a_port_that_is_taken_is_said_before_anything_is_started(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = sentence(tertulia("serve", "--port", str(port), "--data-dir", tmp_path / "d"))
    assert said.startswith(f"tertulia: Cannot listen on 127.0.0.1:{port}: Address already in use.")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("serve", {"--host": "address", "--port": "8710", "--agents": "YAML", "--no-worker": "Only accept"}),
        ("worker", {"--host": "address", "--port": "/metrics"}),
        ("token", {"--user": "comes in", "--tenant": "organisation", "--role": "may do", "--ttl": "30d"}),
        ("restore", {"--force": "Replace", "FILE": "tertulia backup"}),
        ("backup", {"FILE": "to write"}),
        ("migrate", {"--data-dir": "embedded services"}),
    ],
)
def test_the_help_of_a_command_tells_what_each_option_is_for(command: str, options: dict[str, str]):
    said = " ".join(tertulia(command, "--help").stdout.split())
    assert all(name in said and what in said for name, what in options.items())
    assert "--no-no" not in said


def test_an_unreachable_database_is_said_in_one_sentence():
    settings = {
        "TERTULIA_MIGRATION_URL": "postgresql://owner@127.0.0.1:1/tertulia",
        "TERTULIA_DATABASE_URL": "postgresql://server@127.0.0.1:1/tertulia",
        "TERTULIA_SECRET": SECRET,
        "TERTULIA_PORT": "0",
    }
    assert "Migrating with TERTULIA_MIGRATION_URL failed: " in sentence(tertulia("migrate", **settings))
    del settings["TERTULIA_MIGRATION_URL"]
    assert "check that TERTULIA_DATABASE_URL is right" in sentence(tertulia("serve", **settings))
    assert "check that TERTULIA_DATABASE_URL is right" in sentence(tertulia("worker", **settings))


def test_a_token_is_printed_alone_and_needs_no_server():
    done = tertulia("token", "--user", "ada", "--role", "admin", "--ttl", "12h", TERTULIA_SECRET=SECRET)
    claims = jwt.decode(done.stdout.strip(), SECRET, algorithms=["HS256"], options={"verify_aud": False})
    assert (claims["user_id"], claims["tenant_id"], claims["role"]) == ("ada", "default", "admin")
    assert claims["exp"] == pytest.approx(time.time() + 12 * 3600, abs=60)


async def test_a_token_is_signed_with_the_secret_of_the_data_directory_while_the_server_runs(tmp_path: Path):
    async with Embedded(tmp_path / "data") as services:
        done = tertulia("token", "--user", "ada", "--tenant", "acme", "--data-dir", tmp_path / "data")
        options = {"verify_aud": False}
        claims = jwt.decode(done.stdout.strip(), services.secret, algorithms=["HS256"], options=options)
        assert (claims["user_id"], claims["tenant_id"], claims["role"]) == ("ada", "acme", "user")


async def test_a_second_server_is_told_that_the_data_directory_is_in_use(tmp_path: Path):
    async with Embedded(tmp_path / "data"):
        said = sentence(tertulia("serve", "--port", "0", "--data-dir", tmp_path / "data"))
        assert said.startswith(f"tertulia: The data directory {tmp_path}/data is in use by another tertulia")


def test_the_doctor_is_content_with_a_server_that_has_not_started_yet(tmp_path: Path):
    done = tertulia("doctor", "--data-dir", tmp_path / "data")
    assert done.returncode == 0
    assert "embedded, not running now; `tertulia serve` starts them" in done.stdout
    assert "ok     model: the built-in demo" in done.stdout


async def test_the_doctor_looks_into_the_running_services(tmp_path: Path):
    async with served(tmp_path / "data"):
        done = tertulia("doctor", "--data-dir", tmp_path / "data")
        assert done.returncode == 0
        assert "ok     database: PostgreSQL 18 with pgvector" in done.stdout
        assert "ok     redis: Valkey 9" in done.stdout


async def test_the_doctor_says_what_to_do_about_a_role_that_may_see_everything(tmp_path: Path):
    async with Embedded(tmp_path / "data") as services:
        await migrate(services.migration_url, roles.SERVER)
        settings = {"TERTULIA_DATABASE_URL": services.migration_url, "TERTULIA_SECRET": SECRET}
        done = tertulia("doctor", **settings)
    assert done.returncode == 1
    assert "WRONG  database: The database role 'tertulia_owner' could see every tenant's data" in done.stdout
    assert "WRONG  redis: TERTULIA_REDIS_URL must be set when TERTULIA_DATABASE_URL is." in done.stdout


def test_the_doctor_says_what_to_do_about_what_it_cannot_reach():
    done = tertulia(
        "doctor",
        TERTULIA_DATABASE_URL="postgresql://server@127.0.0.1:1/tertulia",
        TERTULIA_REDIS_URL="redis://127.0.0.1:1",
        TERTULIA_SECRET=SECRET,
        TERTULIA_MODEL="google_genai:gemini-2.5-flash",
    )
    assert done.returncode == 1
    assert "check that TERTULIA_DATABASE_URL is right and the server runs" in done.stdout
    assert "check that TERTULIA_REDIS_URL is right and the server runs" in done.stdout
    assert "WRONG  model: google_genai:gemini-2.5-flash needs a key: set GOOGLE_API_KEY." in done.stdout


async def test_a_backup_brings_back_everything_elsewhere(tmp_path: Path):
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "backup"
    async with served(here):
        await superuser(here, _FILL)
        assert tertulia("backup", file, "--data-dir", here).returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert tertulia("restore", file, "--data-dir", there).returncode == 0
    async with served(there):
        assert await superuser(there, "SELECT string_agg(word, ' ' ORDER BY word) FROM kept") == "hidden 你好"
        assert (
            await superuser(there, "SELECT relforcerowsecurity FROM pg_class WHERE relname = 'kept'") is True
        )
        assert (
            await superuser(there, "SELECT tableowner FROM pg_tables WHERE tablename = 'kept'")
            == "tertulia_owner"
        )
        assert tertulia("doctor", "--data-dir", there).returncode == 0


_FILL = """
CREATE TABLE kept AS SELECT unnest('{hidden,你好}'::text[]) AS word;
ALTER TABLE kept OWNER TO tertulia_owner;
ALTER TABLE kept ENABLE ROW LEVEL SECURITY;
ALTER TABLE kept FORCE ROW LEVEL SECURITY
"""


async def test_a_restore_replaces_what_is_there_only_when_forced_and_never_under_a_server(tmp_path: Path):
    data_dir, file = tmp_path / "data", tmp_path / "backup"
    async with served(data_dir):
        await superuser(data_dir, "CREATE TABLE state AS SELECT 'before' AS word")
        assert tertulia("backup", file, "--data-dir", data_dir).returncode == 0
        assert "is in use" in sentence(tertulia("restore", file, "--force", "--data-dir", data_dir))
        await superuser(data_dir, "UPDATE state SET word = 'after'")
    assert "--force" in sentence(tertulia("restore", file, "--data-dir", data_dir))
    async with served(data_dir):
        assert await superuser(data_dir, "SELECT word FROM state") == "after"
    assert tertulia("restore", file, "--force", "--data-dir", data_dir).returncode == 0
    async with served(data_dir):
        assert await superuser(data_dir, "SELECT word FROM state") == "before"


async def test_a_backup_works_while_no_server_runs(tmp_path: Path):
    async with served(tmp_path / "data"):
        pass
    done = tertulia("backup", tmp_path / "backup", "--data-dir", tmp_path / "data")
    assert done.returncode == 0
    assert (tmp_path / "backup").read_bytes().startswith(b"PGDMP")
