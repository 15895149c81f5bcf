"""One blocking connection to one broker, of Ottla or Apache Kafka, with TLS and SASL if `Security` asks for them.

Requests are sent in the newest version that both sides know. If the broker limits how long a login lasts, the
connection authenticates again before a request that would come too late (KIP-368).

`ask` sends one request and waits for its answer. With `send` and `receive` several requests can be in flight: the
broker answers them in order, and an answer is kept until `receive` asks for it. Fetch and Produce requests are those of
the hand-written codecs `wire/fetch` and `wire/produce.py`. A connection belongs to one thread.

These codecs, TLS and SASL are imported when they are first used, so that a command that needs none of them starts
faster.
"""

import socket
from base64 import b64encode
from collections.abc import Callable
from importlib import import_module
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from ottla.client.backoff import elapsed_s
from ottla.client.security import Security
from ottla.errors import ErrorCode, KafkaError
from ottla.wire import frames
from ottla.wire.malformed import Malformed
from ottla.wire.message import Message
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.readers import skip_tags

if TYPE_CHECKING:
    import ssl

    from ottla.client.sasl import Login
    from ottla.wire.fetch import FetchRequest
    from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
    from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
    from ottla.wire.produce import ProduceRequest

ANSWER_BYTES_MAX = 100 * 1024 * 1024
LARGE_BYTES = 64 * 1024
CLIENT_ID = "ottla"

_SIZE = Struct(">i")
_CORRELATION_MAX = (1 << 31) - 1
_TLS_ALERT = b"\x15\x03"
"""How an answer begins that a server with TLS gives to a client without."""
_REFUSALS = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
"""Parts of the names of TLS alerts by which a broker refuses a client's certificate, or that it has none."""
_LIFE_SHARE = (0.85, 0.95)
"""When to authenticate again, as a share of a login's life. It is drawn, so that clients do not come all at once."""


class Unreachable(Exception):
    """The broker did not answer, or not as a broker does. The message is one line that begins with the address."""


class NotListening(Unreachable):
    """The connection was refused: no program listens at the address."""


class NotAuthenticated(Unreachable):
    """The client or the broker failed to authenticate. A retry does not help."""


Request: TypeAlias = "Message | FetchRequest | ProduceRequest"


class Awaited(NamedTuple):
    """A request whose answer has not been received."""

    correlation: int
    version: int
    request_class: type
    api: frames.Api


def name_error(code: int) -> str:
    """The name of an error code; a code that this client does not know keeps its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"


def _describe(error: OSError) -> str:
    """An error of the socket in the middle of a sentence."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    reason = _find_tls_reason(error)
    if reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE"):
        return "TLS: there is no TLS at this port (see security.protocol)"
    if reason:
        return f"TLS: {reason.replace('_', ' ').lower()}"
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def _refuses_client(error: OSError) -> bool:
    """Whether the broker ended the connection because of the client's certificate."""
    reason = _find_tls_reason(error)
    return "ALERT" in reason and any(part in reason for part in _REFUSALS)


def _find_tls_reason(error: OSError) -> str:
    """OpenSSL's name of what is wrong. Of all errors of sockets only `ssl.SSLError` has such an attribute."""
    return getattr(error, "reason", None) or ""


def _find_codec(request_class: type) -> tuple[Any, frames.Api] | None:
    """The hand-written codec of a Fetch or Produce request and its API; None for messages: theirs is compiled."""
    if issubclass(request_class, Message):
        return None
    folder = request_class.__module__.split(".")[2]
    return import_module(f"ottla.wire.{folder}"), frames.find_api_by_folder(folder)


def _read_by_hand(codec: Any, awaited: Awaited, frame: bytearray | memoryview) -> Any:
    position = _SIZE.size
    try:
        if awaited.version >= awaited.api.tagged_responses_from:
            position = skip_tags(frame, position, len(frame), "response header")
    except IndexError:
        raise Malformed("the response ends within its header") from None
    return codec.read_response(awaited.version, frame, position)


def _start_tls(plain: socket.socket, host: str, context: "ssl.SSLContext") -> "ssl.SSLSocket":
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


class Connection:
    """The constructor connects, asks for the broker's API versions and authenticates."""

    def __init__(
        self,
        host: str,
        port: int,
        security: Security,
        random: Random,
        timeout_s: float = 10.0,
        client_id: str = CLIENT_ID,
        allocate: Callable[[int], bytearray | memoryview] = bytearray,
        connect_timeout_s: float | None = None,
    ) -> None:
        """`random` makes the nonce of SCRAM; `allocate` provides the memory of large answers. `timeout_s` is that of a
        request, and of connecting if there is no `connect_timeout_s`."""
        self._allocate = allocate
        self._name = f"{host}:{port}"
        self._client_id = client_id
        self._correlation = 0
        self._versions: dict[int, range] = {}
        self._under_way: set[int] = set()
        self._early: dict[int, bytearray | memoryview] = {}
        """Answers that `receive` has not asked for yet, by correlation id."""
        self._unwanted: set[int] = set()
        self._login = security.login
        self._random = random
        self._login_ends_s: float | None = None
        """When the connection has to authenticate again; None: never."""
        try:
            first_s = timeout_s if connect_timeout_s is None else connect_timeout_s
            plain = socket.create_connection((host, port), first_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = _start_tls(plain, host, security.context) if security.context is not None else plain
        except ConnectionRefusedError as error:
            raise NotListening(f"{self._name}: {_describe(error)}") from None
        except OSError as error:
            raise self._explain(error) from None
        try:
            self._learn_versions()
            if self._login is not None:
                self._authenticate(self._login)
        except BaseException:
            self.close()
            raise
        self._socket.settimeout(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def knows(self, request_class: type[Request]) -> bool:
        """Whether there is a version of this API that both sides know."""
        return bool(self.versions(request_class))

    def versions(self, request_class: type[Request]) -> range:
        """The versions of an API that both sides know."""
        by_hand = _find_codec(request_class)
        if by_hand is not None:
            of, ours = by_hand[1], by_hand[0].VERSIONS
        else:
            of = frames.find_api_of(request_class())  # type: ignore[arg-type]
            ours = of.versions
        theirs = self._versions.get(of.key, range(0))
        return range(max(ours.start, theirs.start), min(ours.stop, theirs.stop))

    def ask(self, request: Request, version_max: int | None = None) -> Any:
        """Send a request and wait for its answer. Raises what `send` and `receive` raise."""
        return self.receive(self.send(request, version_max))

    def send(self, request: Request, version_max: int | None = None) -> Awaited:
        """Send a request in the newest version that both sides know, at most `version_max`.

        Raises KafkaError(UNSUPPORTED_VERSION) if there is no such version.
        """
        common = self.versions(type(request))
        if version_max is not None:
            common = range(common.start, min(common.stop, version_max + 1))
        if not common:
            name = type(request).__name__.removesuffix("Request")
            message = f"{self._name} has no version of {name} that this client can use"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        if self._login_ends_s is not None and self._login is not None and elapsed_s() >= self._login_ends_s:
            self._authenticate(self._login)
        return self._send(request, common[-1])

    def receive(self, awaited: Awaited) -> Any:
        """Wait for the answer of one request. Answers of other requests are kept for their own `receive`."""
        try:
            while (frame := self._early.pop(awaited.correlation, None)) is None:
                self._receive_any()
            by_hand = _find_codec(awaited.request_class)
            if by_hand is not None:
                return _read_by_hand(by_hand[0], awaited, frame)
            return frames.decode_response(awaited.api.response, awaited.version, frame)[1]
        except Malformed as error:
            raise Unreachable(f"{self._name}: malformed answer: {error}") from None
        except OSError as error:
            raise self._explain(error) from None

    def abandon(self, awaited: Awaited) -> None:
        """Drop the answer of a request when it arrives, because nobody will `receive` it."""
        if self._early.pop(awaited.correlation, None) is None:
            self._unwanted.add(awaited.correlation)

    def _exchange(self, request: Message, version: int) -> Any:
        return self.receive(self._send(request, version))

    def _send(self, request: Request, version: int) -> Awaited:
        self._correlation = self._correlation % _CORRELATION_MAX + 1
        by_hand = _find_codec(type(request))
        if by_hand is None:
            assert isinstance(request, Message)
            of = frames.find_api_of(request)
            encoded: bytes | bytearray = frames.encode_request(request, version, self._correlation, self._client_id)
        else:
            codec, of = by_hand
            header = frames.request_header(of, version, self._correlation, self._client_id)
            encoded = codec.write_request(version, request, _SIZE.pack(0) + header)
            _SIZE.pack_into(encoded, 0, len(encoded) - _SIZE.size)
        self._under_way.add(self._correlation)
        try:
            self._socket.sendall(encoded)
        except OSError as error:
            raise self._explain(error) from None
        return Awaited(self._correlation, version, type(request), of)

    def _explain(self, error: OSError) -> Unreachable:
        broken = getattr(error, "verify_message", None)  # of ssl.SSLCertVerificationError
        if broken:
            return NotAuthenticated(f"{self._name}: TLS: {broken}")
        kind = NotAuthenticated if _refuses_client(error) else Unreachable
        return kind(f"{self._name}: {_describe(error)}")

    def _receive_any(self) -> None:
        start = bytes(self._read(_SIZE.size))
        (size,) = _SIZE.unpack(start)
        if start.startswith(_TLS_ALERT):
            raise NotAuthenticated(f"{self._name}: the broker expects TLS at this port (see security.protocol)")
        if not _SIZE.size <= size <= ANSWER_BYTES_MAX:
            raise Unreachable(f"{self._name}: the answer is not that of a Kafka broker")
        frame = self._read(size)
        (correlation,) = _SIZE.unpack_from(frame)
        if correlation not in self._under_way:
            raise Unreachable(f"{self._name}: an answer to a request that was not sent")
        self._under_way.remove(correlation)
        if correlation in self._unwanted:
            self._unwanted.remove(correlation)
        else:
            self._early[correlation] = frame

    def _read(self, size: int) -> bytearray | memoryview:
        found = self._allocate(size) if size >= LARGE_BYTES else bytearray(size)
        with memoryview(found) as target:
            done = 0
            while done < size:
                count = self._socket.recv_into(target[done:])
                if not count:
                    hint = "" if self._versions else " (does the broker expect TLS? see security.protocol)"
                    raise Unreachable(f"{self._name}: the connection was closed{hint}")
                done += count
        return found

    def _learn_versions(self) -> None:
        response: ApiVersionsResponse = self._exchange(ApiVersionsRequest(), 0)  # which every broker knows
        if response.error_code:
            raise Unreachable(f"{self._name}: {name_error(response.error_code)}")
        self._versions = {api.api_key: range(api.min_version, api.max_version + 1) for api in response.api_keys}

    # SASL

    def _authenticate(self, login: "Login") -> None:
        from ottla.client import sasl
        from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

        answer: SaslHandshakeResponse = self._exchange(SaslHandshakeRequest(mechanism=login.mechanism), 1)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "none"
            raise NotAuthenticated(f"{self._name}: the broker does not offer {login.mechanism}, only {offered}")
        self._login_ends_s = None
        try:
            sasl.authenticate(login, b64encode(self._random.randbytes(18)).decode(), self._exchange_token)
        except sasl.SaslError as error:
            raise NotAuthenticated(f"{self._name}: {error}") from None

    def _exchange_token(self, token: bytes) -> bytes:
        from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest

        answer: SaslAuthenticateResponse = self._exchange(SaslAuthenticateRequest(auth_bytes=token), 1)
        if answer.error_code:
            reason = answer.error_message or name_error(answer.error_code)
            raise NotAuthenticated(f"{self._name}: {reason}")
        if answer.session_lifetime_ms > 0:
            share = self._random.uniform(*_LIFE_SHARE)
            self._login_ends_s = elapsed_s() + answer.session_lifetime_ms / 1000 * share
        return answer.auth_bytes
