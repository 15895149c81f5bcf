"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both sides, and the credentials that a broker keeps.

    client-first   n,,n=alice,r=<client nonce>[,tokenauth=true]
    server-first   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final   c=biws,r=<both nonces>,p=<proof>
    server-final   v=<signature>

A credential has no password, only two keys that are derived from it: whoever reads them cannot log in with them. For a
user that does not exist the server invents a salt, always the same for the same name, and refuses the proof as it
refuses a wrong one.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.security.failure import AuthenticationFailed

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384
HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS: Mapping[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Mechanism -> Kafka's number."""

NONCE_BYTES = 24
NONCE_CHARS_MAX = 1024
SALT_BYTES = 16

_BASE64 = rb"[A-Za-z0-9/+]+={0,2}"
_NAME = rb"(?:[^\x00=,]|=2C|=3D)+"
_PRINTABLE = rb"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST = re.compile(
    rb"(n,(?:a=(" + _NAME + rb"))?,)(n=(" + _NAME + rb"),r=(" + _PRINTABLE + rb")((?:,[A-Za-z]+=[^,\x00]*)*))",
    re.DOTALL,
)
_SERVER_FIRST = re.compile(rb"r=(" + _PRINTABLE + rb"),s=(" + _BASE64 + rb"),i=([0-9]{1,9})(?:,.*)?", re.DOTALL)
_CLIENT_FINAL = re.compile(
    rb"(c=(" + _BASE64 + rb"),r=(" + _PRINTABLE + rb")(?:,[A-Za-z]=[^,]*)*),p=(" + _BASE64 + rb")", re.DOTALL
)
_SERVER_FINAL = re.compile(rb"v=(" + _BASE64 + rb")(?:,.*)?", re.DOTALL)


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"  # keys belong into no log


class ClientFirst(NamedTuple):
    header: bytes
    """Channel binding and authorization id, which the last message repeats."""
    bare: bytes
    name: str
    nonce: bytes
    extensions: Mapping[str, str]


def derive(mechanism: str, password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password. It takes milliseconds: call it in a thread."""
    return from_salted_password(mechanism, salt_password(mechanism, password, salt, iterations), salt, iterations)


def salt_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, iterations)


def from_salted_password(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramCredential(
        salt, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name), iterations
    )


def invent(mechanism: str, name: str, secret: bytes, iterations: int = ITERATIONS_MIN) -> ScramCredential:
    """What a user that does not exist gets: the same for the same name, and no password fits it."""
    seed = hmac.digest(secret, f"{mechanism}\0{name}".encode("utf-8", "surrogatepass"), "sha512")
    size = hashlib.new(HASHES[mechanism]).digest_size
    return ScramCredential(seed[:SALT_BYTES], seed[-size:], bytes(size), iterations)


def read_client_first(message: bytes) -> ClientFirst:
    match = _CLIENT_FIRST.fullmatch(bytes(message))
    if match is None or len(match[5]) > NONCE_CHARS_MAX:
        raise AuthenticationFailed("Invalid SCRAM client first message")
    try:
        name = match[4].decode().replace("=2C", ",").replace("=3D", "=")
        authorization = (match[2] or b"").decode().replace("=2C", ",").replace("=3D", "=")
        pairs = [pair.decode().partition("=") for pair in match[6].split(b",") if pair]
    except UnicodeDecodeError:
        raise AuthenticationFailed("Invalid SCRAM client first message") from None
    if authorization not in ("", name):
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    return ClientFirst(match[1], match[3], name, match[5], {key: value for key, _, value in pairs})


class ServerConversation:
    """The server's side, from the second message on. `credential` may be an invented one."""

    def __init__(self, mechanism: str, first: ClientFirst, credential: ScramCredential, nonce: bytes) -> None:
        self._hash = HASHES[mechanism]
        self._mechanism = mechanism
        self._first = first
        self._credential = credential
        self._nonce = first.nonce + base64.b64encode(nonce)
        salt = base64.b64encode(credential.salt)
        self.server_first = b"r=%b,s=%b,i=%d" % (self._nonce, salt, credential.iterations)

    def finish(self, message: bytes) -> bytes:
        """Check the proof of the client. Returns the last message of the server."""
        refusal = AuthenticationFailed(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )
        match = _CLIENT_FINAL.fullmatch(bytes(message))
        if match is None:
            raise AuthenticationFailed("Invalid SCRAM client final message")
        without_proof, binding, nonce, proof_text = match.groups()
        if not hmac.compare_digest(nonce, self._nonce):  # or an old proof could be sent again: CVE-2024-56128
            raise refusal
        if _decode(binding) != self._first.header:
            raise refusal
        signed = b",".join((self._first.bare, self.server_first, without_proof))
        signature = hmac.digest(self._credential.stored_key, signed, self._hash)
        proof = _decode(proof_text)
        client_key = bytes(a ^ b for a, b in zip(proof.ljust(len(signature), b"\0"), signature, strict=False))
        stored_key = hashlib.new(self._hash, client_key).digest()
        is_right = hmac.compare_digest(stored_key, self._credential.stored_key)
        if len(proof) != len(signature) or not is_right:
            raise refusal
        return b"v=" + base64.b64encode(hmac.digest(self._credential.server_key, signed, self._hash))


class ClientConversation:
    """The client's side, by which a broker authenticates with another one."""

    def __init__(self, mechanism: str, name: str, password: str, nonce: bytes, *, token: bool = False) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = base64.b64encode(nonce)
        escaped = name.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=%b,r=%b%b" % (escaped, self._nonce, b",tokenauth=true" if token else b"")
        self.client_first = b"n,," + self._bare
        self._server_signature = b""

    def answer(self, server_first: bytes) -> bytes:
        """The last message of the client. It derives keys, which takes milliseconds: call it in a thread."""
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None:
            raise AuthenticationFailed("the other broker sent no SCRAM message")
        nonce, salt, iterations = match[1], _decode(match[2]), int(match[3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the other broker answers with another nonce")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise AuthenticationFailed(f"the other broker asks for {iterations} iterations")
        salted = salt_password(self._mechanism, self._password, salt, iterations)
        without_proof = b"c=biws,r=" + nonce
        signed = b",".join((self._bare, server_first, without_proof))
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._server_signature = hmac.digest(server_key, signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return without_proof + b",p=" + base64.b64encode(proof)

    def check(self, server_final: bytes) -> None:
        """The other side must know the credential too."""
        match = _SERVER_FINAL.fullmatch(server_final)
        if match is None or not hmac.compare_digest(_decode(match[1]), self._server_signature):
            raise AuthenticationFailed("the other broker does not know this broker's credential")


def _decode(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationFailed("Invalid SCRAM message: not base64") from None
