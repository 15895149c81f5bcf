"""A connection to a broker that speaks STOMP, through stomp.py.

A thread of stomp.py receives. What it has received waits in queues: messages, and answers of the broker. Everything
that is sent and matters asks for a receipt, so that it is known to have arrived.
"""

import contextlib
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from logging import CRITICAL, getLogger
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from ottla.connect.errors import BadConfig, ConnectError, RetriableError
from ottla.connect.settings.definition import Password

_REFUSAL: Final = re.compile(
    r"password|user name|credential|authenticat|not authorized|security|selector|InvalidClientID", re.IGNORECASE
)
"""Words of an error that a repetition does not mend."""
_IN_USE: Final = re.compile(r"already (connected|exists)|in use", re.IGNORECASE)
_SUBSCRIPTION: Final = "1"
_ARTEMIS_HEADERS: Final = ("__AMQ_CID", "_AMQ_DUPL_ID", "_AMQ_ROUTING_TYPE")
"""What Artemis keeps for itself among a message's properties."""
_MESSAGES_IN_FLIGHT: Final = 500
"""Messages of a transaction that are sent before a receipt is waited for."""


class Frame(NamedTuple):
    """A message on its way."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["message-id"]


@dataclass(frozen=True)
class BrokerAddress:
    """How to reach a broker. It is pickled with the connector."""

    hosts: tuple[tuple[str, int], ...]
    """They are tried one after the other."""
    is_encrypted: bool = False
    user: str | None = None
    password: Password | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    heartbeat_ms: int = 10_000
    authorities: str | None = None

    def __str__(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self.hosts)


class Session:
    """One connection, for one thread. After an error it is of no use any more."""

    def __init__(self, address: BrokerAddress, client_id: str | None = None) -> None:
        """Connects. RetriableError if no broker answers, ConnectError if it refuses the user."""
        try:
            import stomp
            from stomp.exception import StompException
        except ImportError:
            raise BadConfig("JMS connectors need stomp.py: pip install 'ottla[connect]'") from None
        getLogger("stomp.py").setLevel(CRITICAL)  # what it logs is told by the errors that are raised here
        self._error_types = (StompException, OSError)
        self._address = address
        self._listener = _Listener()
        self._receipts = 0
        self._is_closed = False
        self._connection = stomp.Connection12(
            list(address.hosts),
            prefer_localhost=False,
            try_loopback_connect=False,
            reconnect_attempts_max=1,
            reconnect_sleep_initial=0,
            timeout=address.timeout_s,
            heartbeats=(address.heartbeat_ms, address.heartbeat_ms),
            auto_decode=False,
            auto_content_length=False,
        )
        if address.is_encrypted:
            self._connection.set_ssl(address.hosts, ca_certs=address.authorities)
        self._connection.set_listener("ottla", self._listener)
        try:
            self._connection.connect(
                address.user, address.password, headers={} if client_id is None else {"client-id": client_id}
            )
        except self._error_types as error:
            self.close()
            raise RetriableError(f"no JMS broker answers at {address}: {_describe(error)}") from None
        answer = self._wait("CONNECTED")
        server = answer.get("server", "")
        self.is_classic = server.startswith("ActiveMQ/")
        """Whether the broker is ActiveMQ Classic, which has ways of its own."""
        self.is_artemis = server.startswith("ActiveMQ-Artemis/")

    def subscribe(self, destination: str, selector: str, pending_max: int, durable_name: str | None) -> None:
        """Receive messages from now on, at most `pending_max` that are not acknowledged."""
        headers = {
            "transformation": "jms-json",
            "activemq.prefetchSize": str(pending_max),
            "consumer-window-size": "-1",
        }
        name, routing = self._find_address(destination)
        if routing is not None:
            headers["subscription-type"] = routing
        if selector:
            headers["selector"] = selector
        if durable_name is not None:
            headers |= {"activemq.subscriptionName": durable_name, "durable-subscription-name": durable_name}
        receipt = self._make_receipt()
        self._do(
            lambda: self._connection.subscribe(
                name, durable_name or _SUBSCRIPTION, "client", {**headers, "receipt": receipt}
            )
        )
        self._wait(receipt)

    def receive(self, count_max: int, bytes_max: int) -> list[Frame]:
        """What has arrived, without waiting. RetriableError if nothing has and nothing will."""
        found: list[Frame] = []
        size = 0
        messages = self._listener.messages
        while messages and len(found) < count_max and size < bytes_max:
            frame = messages.popleft()
            found.append(adapt_artemis(frame) if self.is_artemis else frame)
            size += len(frame.body)
        if not found:
            self._raise_error()
        return found

    def acknowledge(self, frame: Frame) -> None:
        """Acknowledge a message and all that were received before it."""
        receipt = self._make_receipt()
        self._do(lambda: self._connection.ack(frame.headers["ack"], receipt=receipt))
        self._wait(receipt)

    def send_all(self, destination: str, frames: Sequence[Frame]) -> None:
        """Send messages in one transaction: all of them or none."""
        name = self._make_receipt()
        self._do(lambda: self._connection.begin(name))
        self._send(destination, frames, {"transaction": name})
        receipt = self._make_receipt()
        self._do(lambda: self._connection.commit(name, receipt=receipt))
        self._wait(receipt)

    def send_each(self, destination: str, frames: Sequence[Frame]) -> None:
        """Send messages one by one. Artemis leaves out those whose duplicate id it knows.

        In a transaction one such message would undo all others.
        """
        self._send(destination, frames, {})

    def _send(self, destination: str, frames: Sequence[Frame], more: Mapping[str, str]) -> None:
        """The last one of them has arrived if there is no transaction."""
        name, routing = self._find_address(destination)
        if routing is not None:
            more = {**more, "destination-type": routing}
        for number, frame in enumerate(frames, 1):
            headers = {**frame.headers, **more}
            is_last = number == len(frames) and "transaction" not in more
            receipt = self._make_receipt() if is_last or number % _MESSAGES_IN_FLIGHT == 0 else None
            if receipt is not None:
                headers["receipt"] = receipt
            # stomp.py leaves the body of a frame as it is if it is bytes.
            self._do(lambda body=frame.body, headers=headers: self._connection.send(name, body, headers=headers))
            if receipt is not None:
                self._wait(receipt)

    def _find_address(self, destination: str) -> tuple[str, str | None]:
        """The destination as the broker names it, and how Artemis is told whether it is a queue or a topic.

        Artemis takes /queue/name for the name of a topic unless its acceptor is configured otherwise.
        """
        if not self.is_artemis:
            return destination, None
        kind, name = destination[1:].split("/", 1)
        return name, "ANYCAST" if kind == "queue" else "MULTICAST"

    def close(self) -> None:
        """Messages that were not acknowledged go to the next one who receives."""
        if self._is_closed:
            return
        self._is_closed = True
        self._connection.remove_listener("ottla")
        transport = self._connection.transport
        queue = transport.send_queue if self._address.is_encrypted else None
        if queue is None:
            transport.disconnect_socket()
        else:
            # stomp.py would wait for the broker's farewell without a limit, and its thread would not notice the end.
            transport.running = False
            with contextlib.suppress(OSError):
                queue.put(b"\n")
        thread = transport.io_thread
        if thread is not None:
            thread.join(self._address.timeout_s)
        if transport.socket is not None:
            transport.socket.close()

    def _make_receipt(self) -> str:
        self._receipts += 1
        return f"ottla-{self._receipts}"

    def _do(self, operation: Any) -> None:
        try:
            operation()
        except self._error_types as error:
            self._raise_error()
            raise RetriableError(
                f"the connection to the JMS broker at {self._address} is lost: {_describe(error)}"
            ) from None

    def _wait(self, wanted: str) -> Mapping[str, str]:
        """The headers of the answer with this receipt, or of CONNECTED. The session is closed if there is none."""
        while True:
            try:
                kind, headers = self._listener.answers.get(timeout=self._address.timeout_s)
            except Empty:
                self.close()
                raise RetriableError(
                    f"the JMS broker at {self._address} has not answered for {self._address.timeout_s:g} s"
                ) from None
            if wanted in (kind, headers.get("receipt-id")):
                return headers
            if kind in ("ERROR", "DISCONNECTED"):
                self._listener.answers.put((kind, headers))
                self._raise_error()

    def _raise_error(self) -> None:
        """Raise what the broker has said before it went away, if it has."""
        while not self._listener.answers.empty():
            kind, headers = self._listener.answers.get()
            if kind not in ("ERROR", "DISCONNECTED"):
                continue
            self.close()
            text = headers.get("message", "the connection is lost")
            message = f"the JMS broker at {self._address} says: {text}"
            if kind == "ERROR" and _REFUSAL.search(text) and not _IN_USE.search(text):
                raise ConnectError(message)
            raise RetriableError(message)


def adapt_artemis(frame: Frame) -> Frame:
    """A message of Artemis as ActiveMQ Classic would send it.

    Artemis puts the number of the consumer before the message's own number, so a message that comes again has another
    id. Numbers begin again if the broker loses its disk, so the message's time is part of its id here. A bytes message
    has its length among the first headers; a text message has it at the end, where Artemis adds it to every frame.
    """
    headers = dict(frame.headers)
    names = list(headers)
    is_bytes = "content-length" in headers and names.index("content-length") < names.index("message-id")
    number = headers["message-id"].rpartition(",")[2]
    kind = "topic" if headers.pop("destination-type", "") == "MULTICAST" else "queue"
    headers |= {
        "message-id": f"ID:{number}-{headers.get('timestamp', '0')}",
        "destination": f"/{kind}/{headers['destination']}",
        "amq-msg-type": "bytes" if is_bytes else "text",
    }
    return Frame({name: text for name, text in headers.items() if name not in _ARTEMIS_HEADERS}, frame.body)


class _Listener:
    """Called by the thread of stomp.py."""

    def __init__(self) -> None:
        self.messages: deque[Frame] = deque()
        self.answers: SimpleQueue[tuple[str, Mapping[str, str]]] = SimpleQueue()

    def on_connected(self, frame: Any) -> None:
        self.answers.put(("CONNECTED", frame.headers))

    def on_message(self, frame: Any) -> None:
        self.messages.append(Frame(frame.headers, frame.body))

    def on_receipt(self, frame: Any) -> None:
        self.answers.put(("RECEIPT", frame.headers))

    def on_error(self, frame: Any) -> None:
        text = frame.headers.get("message") or (frame.body or b"").decode("utf-8", "replace").partition("\n")[0]
        self.answers.put(("ERROR", {"message": text}))

    def on_disconnected(self) -> None:
        self.answers.put(("DISCONNECTED", {}))


def _describe(error: BaseException) -> str:
    return str(error) or type(error).__name__
