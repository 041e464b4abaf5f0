"""Tokens that are forged, stale, meant for others, or hold what no name may hold."""

import base64
import hmac
import json
import time
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.attacks.conftest import OLD_SECRET
from tests.support.client import token
from tests.support.instance import SECRET, Instance
from tests.support.refusals import refused
from tests.support.rows import Rows

GOOD: dict[str, Any] = {"user_id": "ann", "tenant_id": "acme", "exp": 4_000_000_000}


def part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def by_hand(header: dict[str, Any], claims: object, key: bytes, digest: str = "sha256") -> str:
    """A token as only somebody would write it who minds no library: with any header, claims and key."""
    content = f"{part(header)}.{part(claims)}"
    signature = base64.urlsafe_b64encode(hmac.digest(key, content.encode(), digest))
    return f"{content}.{signature.rstrip(b'=').decode()}"


def signed(claims: dict[str, Any], headers: dict[str, Any] | None = None, secret: str = SECRET) -> str:
    return by_hand({"alg": "HS256", "typ": "JWT", **(headers or {})}, claims, secret.encode())


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


def with_a_public_key_as_secret() -> str:
    public = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return by_hand({"alg": "HS256", "typ": "JWT"}, GOOD, pem)


def with_a_key_of_its_own() -> str:
    return jwt.encode(GOOD, rsa.generate_private_key(public_exponent=65537, key_size=2048), algorithm="RS256")


FORGED = {
    "words": "let me in",
    "dots": "..",
    "alg none": f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(GOOD)}.",
    "alg None": f"{part({'alg': 'None', 'typ': 'JWT'})}.{part(GOOD)}.",
    "no alg": f"{part({'typ': 'JWT'})}.{part(GOOD)}.",
    "no signature": signed(GOOD).rpartition(".")[0] + ".",
    "another signature": signed(GOOD).rpartition(".")[0] + "." + signed(GOOD | {"exp": 1}).rpartition(".")[2],
    "another body": ".".join(
        [signed(GOOD).split(".")[0], part(GOOD | {"user_id": "bob"}), signed(GOOD).split(".")[2]]
    ),
    "another secret": signed(GOOD, secret="another-secret-for-tests-0123456789abcdef"),
    "an empty secret": signed(GOOD, secret=""),
    "a public key as the secret": with_a_public_key_as_secret(),
    "RS256 with its own key": with_a_key_of_its_own(),
    "HS512": by_hand({"alg": "HS512"}, GOOD, SECRET.encode(), "sha512"),
    "a kid that is a path": signed(GOOD, {"kid": "../../../../dev/null"}, secret="\n" * 32),
    "a jku and its own key": signed(GOOD, {"jku": "http://127.0.0.1/keys"}, secret="x" * 32),
    "an unknown critical header": signed(GOOD, {"crit": ["b64"], "b64": False}),
    "no exp": signed(without("exp")),
    "no user": signed(without("user_id")),
    "no tenant": signed(without("tenant_id")),
    "expired": signed(GOOD | {"exp": int(time.time()) - 60}),
    "not yet": signed(GOOD | {"nbf": int(time.time()) + 600}),
    "for another audience": signed(GOOD | {"aud": "another-service"}),
    "a body that is an array": by_hand({"alg": "HS256"}, [GOOD], SECRET.encode()),
    "a body that is no JSON": f"{part({'alg': 'HS256'})}.!!!.x",
    "a header of 30 kB": signed(GOOD, {"x": "y" * 30_000}, secret="z" * 32),
}

MISSPOKEN = {
    "an empty user": {"user_id": ""},
    "an empty tenant": {"tenant_id": ""},
    "a number as user": {"user_id": 5},
    "null as tenant": {"tenant_id": None},
    "a list as user": {"user_id": ["ann"]},
    "a line end in the user": {"user_id": "ann\r\nX: y"},
    "NUL in the tenant": {"tenant_id": "acme\x00"},
    "an invisible user": {"user_id": "\u200b"},
    "a bidi override in the user": {"user_id": "nna\u202e"},
    "half a surrogate pair in the user": {"user_id": "\ud83d"},
    "a user of 201 characters": {"user_id": "a" * 201},
    "a word as exp": {"exp": "soon"},
    "a list as exp": {"exp": [4_000_000_000]},
    "null as exp": {"exp": None},
    "true as exp": {"exp": True},
    "an endless exp": {"exp": float("inf")},
    "no number as exp": {"exp": float("nan")},
    "an exp of 400 digits": {"exp": 10**400},
    "an exp of 4,999 digits": {"exp": int("9" * 4000)},
    "a word as nbf": {"nbf": "then"},
    "an object as aud": {"aud": {"a": 1}},
}


async def ask(server: Instance, bearer: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        return await http.get(
            "/api/notifications", headers=[(b"Authorization", b"Bearer " + bearer.encode())]
        )


@pytest.mark.parametrize("bearer", FORGED.values(), ids=FORGED.keys())
async def test_a_token_that_is_not_ours_lets_nobody_in(bearer: str, server: Instance) -> None:
    response = await ask(server, bearer)
    refused(response, 401, "UNAUTHENTICATED")
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("claims", MISSPOKEN.values(), ids=MISSPOKEN.keys())
async def test_a_claim_that_is_of_no_use_lets_nobody_in_and_writes_nobody_down(
    claims: dict[str, Any], server: Instance, rows: Rows
) -> None:
    before = await rows.connection.fetchval("SELECT count(*) FROM users")
    refused(await ask(server, signed(GOOD | claims)), 401, "UNAUTHENTICATED")
    assert await rows.connection.fetchval("SELECT count(*) FROM users") == before


@pytest.mark.parametrize(
    "header", [b"", b"Bearer", b"Basic YW5uOmFubg==", b"Token x", b"Bearer\tx", b"bearer \xff\xfe"]
)
async def test_a_header_that_holds_no_bearer_token_lets_nobody_in(header: bytes, server: Instance) -> None:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        refused(
            await http.get("/api/notifications", headers=[(b"Authorization", header)]), 401, "UNAUTHENTICATED"
        )


async def test_names_and_addresses_in_a_token_are_cleaned_and_cut(server: Instance, rows: Rows) -> None:
    claims = {"user_id": "nora", "tenant_id": "names", "name": "No\x00ra" + "a" * 300, "email": {"a": 1}}
    assert (await ask(server, signed(GOOD | claims))).status_code == 200
    row = await rows.connection.fetchrow(
        "SELECT name, email FROM users WHERE tenant = 'names' AND id = 'nora'"
    )
    assert row is not None
    assert (row["name"][:5], len(row["name"]), row["email"]) == ("Noraa", 199, None)


async def test_every_request_of_an_expired_token_is_refused_even_if_it_was_known(server: Instance) -> None:
    stale = token("ann", ttl=-26)  # within the leeway for clocks, for some seconds more
    assert (await ask(server, stale)).status_code == 200
    deadline = time.monotonic() + 8
    while (response := await ask(server, stale)).status_code == 200:
        assert time.monotonic() < deadline
    assert (
        refused(response, 401, "UNAUTHENTICATED")["message"] == "The token has expired. Please sign in again."
    )


OURS = {"aud": "tertulia", "iss": "https://id.example"}


@pytest.mark.parametrize(
    "claims",
    [
        {},
        OURS | {"aud": "another"},
        OURS | {"aud": None},
        OURS | {"iss": "https://evil.example"},
        OURS | {"iss": None},
        OURS | {"aud": ["x", "y"]},
        OURS | {"iss": ["https://id.example"]},
        OURS | {"aud": ""},
    ],
)
async def test_where_audience_and_issuer_are_set_no_others_get_in(
    claims: dict[str, Any], strict: Instance
) -> None:
    named = {name: value for name, value in claims.items() if value is not None}
    refused(await ask(strict, signed(GOOD | named)), 401, "UNAUTHENTICATED")


async def test_where_audience_and_issuer_are_set_they_get_in(strict: Instance) -> None:
    assert (await ask(strict, token("ann", "audience", **OURS))).status_code == 200
    assert (
        await ask(strict, token("ann", "audience", **(OURS | {"aud": ["x", "tertulia"]})))
    ).status_code == 200


async def test_while_a_secret_is_rotated_both_are_good_and_no_third(strict: Instance) -> None:
    for secret, status in (
        (SECRET, 200),
        (OLD_SECRET, 200),
        (f"{SECRET},{OLD_SECRET}", 401),
        ("x" * 40, 401),
    ):
        assert (await ask(strict, token("ann", "rotation", secret=secret, **OURS))).status_code == status
