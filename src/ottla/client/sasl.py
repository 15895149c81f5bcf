"""The client's side of SASL: PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER. `exchange` carries the messages."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from hmac import compare_digest
from hmac import digest as keyed_digest
from typing import Final

from ottla.client.tokens import TokenError, TokenSource

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ("PLAIN", *SCRAM_HASHES, "OAUTHBEARER")
_ITERATIONS_MAX: Final = 1_000_000
"""A broker that asks for more SCRAM iterations would keep the client busy for seconds."""

Exchange = Callable[[bytes], bytes]
"""Sends one message to the broker and returns the broker's answer. Raises what ends the authentication."""


class SaslError(Exception):
    """The broker broke the protocol, or did not prove who it is, or the client has no credentials."""


@dataclass(frozen=True, slots=True)
class Login:
    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    is_delegation_token: bool = False
    """The username is the id of a delegation token, and the password its HMAC."""
    tokens: TokenSource | None = None


def authenticate(login: Login, nonce: str, exchange: Exchange) -> None:
    """Raises SaslError, or what `exchange` raises. `nonce` is used by SCRAM alone."""
    if login.mechanism == "PLAIN":
        exchange(b"\0" + login.username.encode() + b"\0" + login.password.encode())
    elif login.mechanism == "OAUTHBEARER":
        _bear_token(login, exchange)
    else:
        try:
            _authenticate_with_scram(login, nonce, exchange)
        except ValueError:
            raise SaslError("malformed SCRAM message") from None


def _bear_token(login: Login, exchange: Exchange) -> None:
    """RFC 7628. A broker that refuses a token says why in JSON, and ends with an error after an empty message."""
    assert login.tokens is not None
    try:
        token, _ = login.tokens.find_token()
    except TokenError as error:
        raise SaslError(str(error)) from None
    extensions = "".join(f"{name}={value}\x01" for name, value in login.tokens.extensions.items())
    if exchange(f"n,,\x01auth=Bearer {token}\x01{extensions}\x01".encode()):
        exchange(b"\x01")
        raise SaslError("the broker refused the token")


def _authenticate_with_scram(login: Login, nonce: str, exchange: Exchange) -> None:
    """RFC 5802. The broker's proof is checked too, so a broker that does not know the password is rejected."""
    algorithm = SCRAM_HASHES[login.mechanism]
    name = login.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}" + ",tokenauth=true" * login.is_delegation_token
    answer = exchange(f"n,,{first}".encode()).decode()
    attributes = dict(part.split("=", 1) for part in answer.split(",") if "=" in part)
    nonce_of_broker, iteration_text = attributes.get("r", ""), attributes.get("i", "")
    if not nonce_of_broker.startswith(nonce) or not iteration_text.isdecimal():
        raise SaslError("malformed SCRAM message")
    iterations = int(iteration_text)
    if iterations > _ITERATIONS_MAX:
        raise SaslError(f"SCRAM with {iterations} iterations; the limit is {_ITERATIONS_MAX}")
    salted = pbkdf2_hmac(algorithm, login.password.encode(), b64decode(attributes.get("s", "")), iterations)
    final = f"c=biws,r={nonce_of_broker}"
    signed = f"{first},{answer},{final}".encode()
    client_key = keyed_digest(salted, b"Client Key", algorithm)
    signature = keyed_digest(new_hash(algorithm, client_key).digest(), signed, algorithm)
    proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
    answer = exchange(f"{final},p={b64encode(proof).decode()}".encode()).decode()
    expected = keyed_digest(keyed_digest(salted, b"Server Key", algorithm), signed, algorithm)
    if not compare_digest(answer.partition("v=")[2].encode(), b64encode(expected)):
        raise SaslError("the broker failed to prove that it knows the password")
