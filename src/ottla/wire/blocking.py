"""A client's connection that waits for each answer: for APIs that the client library lacks.

It speaks to any Kafka: the newest version of an API that both sides know, in plain text or TLS, with SASL PLAIN or
SCRAM. One request at a time. Settings are librdkafka's, by librdkafka's names, so that a user gives them once.
"""

import socket
import ssl
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from hmac import compare_digest
from hmac import digest as keyed_digest
from random import Random
from struct import Struct
from typing import Any, Self

from ottla.errors import ErrorCode, KafkaError
from ottla.wire import frames
from ottla.wire.malformed import Malformed
from ottla.wire.message import Message
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

ANSWER_BYTES_MAX = 100 * 1024 * 1024
CLIENT_ID = "ottla"

_SIZE = Struct(">i")
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS_MAX = 1_000_000
"""A server that asks for more wants to keep the client busy."""


class Unreachable(Exception):
    """The broker did not answer, or not as a broker does; one line."""


@dataclass(frozen=True, slots=True)
class Security:
    context: ssl.SSLContext | None = None
    mechanism: str = ""
    username: str = ""
    password: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "Security":
        """From librdkafka's settings. ValueError for what only librdkafka itself can do, or that contradicts itself."""
        protocol = settings.get("security.protocol", "plaintext").upper()
        if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise ValueError(f"security.protocol={protocol.lower()} is unknown")
        context = _tls_context(settings) if protocol.endswith("SSL") else None
        if not protocol.startswith("SASL"):
            return cls(context)
        mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "")).upper()
        if mechanism != "PLAIN" and mechanism not in _HASHES:
            raise ValueError(f"sasl.mechanism={mechanism} cannot be used for this; PLAIN and SCRAM can")
        return cls(context, mechanism, settings.get("sasl.username", ""), settings.get("sasl.password", ""))


def _tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
        )
        if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            context.check_hostname = False
        if "ssl.certificate.location" in settings:
            context.load_cert_chain(
                settings["ssl.certificate.location"],
                settings.get("ssl.key.location"),
                settings.get("ssl.key.password"),
            )
    except OSError as error:
        raise ValueError(f"TLS: {error.strerror or error}") from None
    return context


class Connection:
    """Made when it is open, authenticated, and knows what the broker can do."""

    def __init__(self, host: str, port: int, security: Security, random: Random, timeout_s: float = 10.0) -> None:
        """`random` is for the nonce that keeps an authentication from being replayed."""
        self._name = f"{host}:{port}"
        self._correlation = 0
        self._versions: dict[int, range] = {}
        try:
            plain = socket.create_connection((host, port), timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = security.context
            self._socket = context.wrap_socket(plain, server_hostname=host) if context is not None else plain
        except OSError as error:
            raise Unreachable(f"{self._name}: {error.strerror or error}") from None
        try:
            self._learn_versions()
            if security.mechanism:
                self._authenticate(security, random)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def knows(self, request_class: type[Message]) -> bool:
        """Whether the broker has this API in a version that we have too."""
        return bool(self._common(request_class))

    def ask(self, request: Message) -> Any:
        """The answer in the newest version that both sides know. KafkaError(UNSUPPORTED_VERSION) if there is none."""
        common = self._common(type(request))
        if not common:
            message = f"{self._name} does not know {frames.api_of(request).name}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        return self._exchange(request, common[-1])

    def _common(self, request_class: type[Message]) -> range:
        of = frames.api_of(request_class())
        theirs = self._versions.get(of.key, range(0))
        return range(max(of.versions.start, theirs.start), min(of.versions.stop, theirs.stop))

    def _exchange(self, request: Message, version: int) -> Any:
        self._correlation += 1
        response_class = frames.api_of(request).response
        try:
            self._socket.sendall(frames.encode_request(request, version, self._correlation, CLIENT_ID))
            (size,) = _SIZE.unpack(self._read(_SIZE.size))
            if not 0 < size <= ANSWER_BYTES_MAX:
                raise Unreachable(f"{self._name}: an answer of {size} bytes; is this a Kafka broker?")
            correlation, response = frames.decode_response(response_class, version, self._read(size))
        except Malformed as error:
            raise Unreachable(f"{self._name}: an answer that cannot be read: {error}") from None
        except OSError as error:
            raise Unreachable(f"{self._name}: {error.strerror or error}") from None
        if correlation != self._correlation:
            raise Unreachable(f"{self._name}: an answer to another question")
        return response

    def _read(self, size: int) -> bytearray:
        """Grows with what comes, not with what was announced."""
        found = bytearray()
        while len(found) < size:
            part = self._socket.recv(min(size - len(found), 1 << 20))
            if not part:
                raise Unreachable(f"{self._name}: the connection was closed")
            found += part
        return found

    def _learn_versions(self) -> None:
        response: ApiVersionsResponse = self._exchange(ApiVersionsRequest(), 0)  # which every broker knows
        if response.error_code:
            raise Unreachable(f"{self._name}: {ErrorCode(response.error_code).name}")
        self._versions = {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}

    # SASL

    def _authenticate(self, security: Security, random: Random) -> None:
        answer: SaslHandshakeResponse = self._exchange(SaslHandshakeRequest(mechanism=security.mechanism), 1)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "none"
            raise Unreachable(f"{self._name}: {security.mechanism} is not offered, but {offered}")
        if security.mechanism == "PLAIN":
            self._say(b"\0" + security.username.encode() + b"\0" + security.password.encode())
        else:
            self._scram(security, b64encode(random.randbytes(18)).decode())

    def _say(self, token: bytes) -> bytes:
        answer: SaslAuthenticateResponse = self._exchange(SaslAuthenticateRequest(auth_bytes=token), 1)
        if answer.error_code:
            reason = answer.error_message or ErrorCode(answer.error_code).name
            raise Unreachable(f"{self._name}: {reason}")
        return answer.auth_bytes

    def _scram(self, security: Security, nonce: str) -> None:
        """RFC 5802. The server's own proof is checked too: it must know the password's keys."""
        algorithm = _HASHES[security.mechanism]
        name = security.username.replace("=", "=3D").replace(",", "=2C")
        first = f"n={name},r={nonce}"
        answer = self._say(f"n,,{first}".encode()).decode()
        told = dict(part.split("=", 1) for part in answer.split(",") if "=" in part)
        if not told.get("r", "").startswith(nonce) or not told.get("i", "").isdecimal():
            raise Unreachable(f"{self._name}: the broker's part of SCRAM cannot be read")
        iterations = int(told["i"])
        if iterations > _ITERATIONS_MAX:
            raise Unreachable(f"{self._name}: SCRAM with {iterations} iterations")
        salted = pbkdf2_hmac(algorithm, security.password.encode(), b64decode(told.get("s", "")), iterations)
        final = f"c=biws,r={told['r']}"
        signed = f"{first},{answer},{final}".encode()
        client_key = keyed_digest(salted, b"Client Key", algorithm)
        signature = keyed_digest(new_hash(algorithm, client_key).digest(), signed, algorithm)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        answer = self._say(f"{final},p={b64encode(proof).decode()}".encode()).decode()
        expected = keyed_digest(keyed_digest(salted, b"Server Key", algorithm), signed, algorithm)
        if not compare_digest(answer.partition("v=")[2].encode(), b64encode(expected)):
            raise Unreachable(f"{self._name}: the broker does not know the password either")

