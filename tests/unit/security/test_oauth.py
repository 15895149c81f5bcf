"""OAUTHBEARER: which tokens are accepted, and which attacks are not."""

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import BrokerConfig, ConfigError
from ottla.security.failure import AuthenticationFailed
from ottla.security.key_sets import KeySet
from ottla.security.oauth import OAuthValidator, read_first_message
from ottla.security.sasl import Identity, ListenerSasl, SaslSession

NOW_S = 1_800_000_000
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def offload(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    try:
        future.set_result(function(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


def write_keys(path: Path, *more: dict[str, Any]) -> str:
    keys = [
        {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY.public_key())), "kid": "rsa", "use": "sig"},
        {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key())), "kid": "ec"},
        *more,
    ]
    path.write_text(json.dumps({"keys": keys}))
    return f"file://{path}"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    url = write_keys(tmp_path / "keys.json", {"kty": "oct", "k": "c2VjcmV0", "kid": "oct"}, {"kty": "odd"})
    return {
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": url,
        "sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "sasl.oauthbearer.expected.audience": "kafka,other",
    }


def sign(key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "rsa", **claims: Any) -> str:
    content = {
        "sub": "alice",
        "iss": "https://issuer.example",
        "aud": "kafka",
        "iat": NOW_S,
        "exp": NOW_S + 600,
        **claims,
    }
    content = {name: value for name, value in content.items() if value is not None}
    return jwt.encode(content, key, algorithm, headers={} if kid is None else {"kid": kid})


def show(settings: dict[str, str], token: str, header: str = "n,,") -> Identity:
    async def authenticate() -> Identity:
        validator = OAuthValidator(BrokerConfig.of(settings), lambda: NOW_S * 1000, offload)
        return await validator.authenticate(f"{header}\x01auth=Bearer {token}\x01\x01".encode())

    return asyncio.run(authenticate())


def test_tokens_of_the_provider_are_accepted(settings: dict[str, str]) -> None:
    identity = show(settings, sign())
    assert (str(identity.principal), identity.expires_at_ms) == ("User:alice", (NOW_S + 600) * 1000)
    assert show(settings, sign(EC_KEY, "ES256", "ec", aud=["x", "other"])).principal.name == "alice"
    assert show(settings, sign(exp=NOW_S - 20)).principal.name == "alice"  # within the clock skew
    assert show(settings, sign(), "n,a=alice,").principal.name == "alice"
    other = {**settings, "sasl.oauthbearer.sub.claim.name": "client"}
    assert show(other, sign(client="bob", scope=["a", "b"])).principal.name == "bob"


def encode(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def unsigned(algorithm: str) -> str:
    claims = {"sub": "alice", "iss": "https://issuer.example", "aud": "kafka", "iat": NOW_S, "exp": NOW_S + 600}
    return f"{encode({'alg': algorithm, 'kid': 'rsa'})}.{encode(claims)}."


def confused() -> str:
    """A token that is signed with the text of the public key, as if it were a secret."""
    import hashlib
    import hmac

    secret = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = unsigned("HS256").rstrip(".")
    signature = hmac.digest(secret, text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


REFUSED: dict[str, Callable[[], str]] = {
    "alg none": lambda: unsigned("none"),
    "alg None": lambda: unsigned("None"),
    "a public key as a secret": confused,
    "a secret key of the set": lambda: jwt.encode({"sub": "x"}, "secret" * 8, "HS256", headers={"kid": "oct"}),
    "another key": lambda: sign(rsa.generate_private_key(65537, 2048)),
    "an unknown key": lambda: sign(kid="unknown"),
    "no key id among two keys": lambda: sign(kid=None),
    "the key of another type": lambda: sign(EC_KEY, "ES256", "rsa"),
    "expired": lambda: sign(exp=NOW_S - 31),
    "no expiry": lambda: sign(exp=None),
    "no issue time": lambda: sign(iat=None),
    "not yet": lambda: sign(nbf=NOW_S + 31),
    "issued in the future": lambda: sign(iat=NOW_S + 31),
    "another issuer": lambda: sign(iss="https://attacker.example"),
    "no issuer": lambda: sign(iss=None),
    "another audience": lambda: sign(aud="web"),
    "no audience": lambda: sign(aud=None),
    "no user": lambda: sign(sub=None),
    "an empty user": lambda: sign(sub="  "),
    "an odd scope": lambda: sign(scope={"a": 1}),
    "odd times": lambda: sign(exp=float("1e300")),
    "garbage": lambda: "garbage",
    "three parts of garbage": lambda: "a.b.c",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_tokens_are_refused(settings: dict[str, str], kind: str) -> None:
    with pytest.raises(AuthenticationFailed) as refusal:
        show(settings, REFUSED[kind]())
    assert json.loads(refusal.value.token) == {"status": "invalid_token"}


def test_a_changed_token_is_refused(settings: dict[str, str]) -> None:
    header, _, signature = sign().split(".")
    with pytest.raises(AuthenticationFailed):
        show(settings, f"{header}.{sign(sub='admin').split('.')[1]}.{signature}")


def test_nobody_acts_for_another_user(settings: dict[str, str]) -> None:
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        show(settings, sign(), "n,a=admin,")


def test_a_refusal_is_told_before_it_ends_the_session(settings: dict[str, str]) -> None:
    # RFC 7628, 3.2.3: JSON, then the client's byte 1, then the failure.
    async def authenticate() -> None:
        validator = OAuthValidator(BrokerConfig.of(settings), lambda: NOW_S * 1000, offload)
        unused: Any = None
        sasl = ListenerSasl(("OAUTHBEARER",), unused, unused, lambda: NOW_S * 1000, oauth=validator)
        session = SaslSession(sasl, time.monotonic)
        session.begin("OAUTHBEARER", raw=False)
        answer = await session.step(b"n,,\x01auth=Bearer garbage\x01\x01")
        assert json.loads(answer) == {"status": "invalid_token"}
        assert session.identity is None
        with pytest.raises(AuthenticationFailed):  # even with a good token: this attempt is over
            await session.step(f"n,,\x01auth=Bearer {sign()}\x01\x01".encode())
        assert session.has_failed
        assert session.identity is None

    asyncio.run(authenticate())


@pytest.mark.parametrize("url", ["file:///etc/passwd", "https://attacker.example/keys", "ftp://x/keys", ""])
def test_only_allowed_urls_are_read(settings: dict[str, str], url: str) -> None:
    # CVE-2025-27817.
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        KeySet(BrokerConfig.of({**settings, "sasl.oauthbearer.jwks.endpoint.url": url}), lambda: 0, offload)


class Redirecting(BaseHTTPRequestHandler):
    """Has keys at /keys, and sends whoever asks for anything else there."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200 if self.path == "/keys" else 302)
        self.send_header("Location", "/keys")
        self.end_headers()
        key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key()))
        self.wfile.write(json.dumps({"keys": [{**key, "kid": "ec"}]}).encode())

    def log_message(self, *arguments: Any) -> None:
        pass


def test_redirects_are_not_followed() -> None:
    # A URL that is allowed must not lead to another one.
    Redirecting.asked = []
    with HTTPServer(("127.0.0.1", 0), Redirecting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = []
        for path in ("/keys", "/elsewhere"):
            url = f"http://127.0.0.1:{server.server_port}{path}"
            names = ("sasl.oauthbearer.jwks.endpoint.url", "org.apache.kafka.sasl.oauthbearer.allowed.urls")
            keys = KeySet(BrokerConfig.of(dict.fromkeys(names, url)), lambda: NOW_S * 1000, offload)

            async def ask(keys: KeySet = keys) -> bool:
                return await keys.find("ec") is not None

            found.append(asyncio.run(ask()))
        server.shutdown()
    assert found == [True, False]
    assert Redirecting.asked == ["/keys", "/elsewhere"]


def test_new_keys_are_found_and_unknown_ones_do_not_make_the_broker_ask_all_the_time(
    settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [NOW_S * 1000]
    fetches = []
    real = KeySet._fetch
    monkeypatch.setattr(KeySet, "_fetch", lambda self: fetches.append(1) or real(self))  # type: ignore[func-returns-value]

    async def ask() -> None:
        keys = KeySet(BrokerConfig.of(settings), lambda: now[0], offload)
        assert await keys.find("new") is None
        for _ in range(100):
            assert await keys.find("newer") is None
        assert len(fetches) == 2
        (key,) = (json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key())),)
        write_keys(tmp_path / "keys.json", {**key, "kid": "new"})
        now[0] += 11_000
        assert await keys.find("new") is not None
        (tmp_path / "keys.json").write_text("nonsense")
        now[0] += 3_600_001
        assert await keys.find("rsa") is not None  # the last keys stay

    asyncio.run(ask())


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_and_nothing_else(noise: bytes) -> None:
    for message in (noise, b"n,,\x01auth=Bearer " + noise + b"\x01\x01", b"n," + noise + b",\x01auth=Bearer x\x01\x01"):
        try:
            read_first_message(message)
        except AuthenticationFailed:
            continue
