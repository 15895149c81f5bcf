"""One connection to a broker that sends whole requests and reads their answers, for the benchmarks of coordinators."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.loads.small_requests import find_errors
from benchmarks.peers.broker_process import HOST, BrokerProcess
from ottla.wire import frames as wire
from ottla.wire.message import Message

PATIENCE_SECONDS = 60.0
RETRY_SECONDS = 0.002


class RequestClient:
    """One socket. Answers come in the order of the requests."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._socket = socket.create_connection((HOST, broker.port), timeout=PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def send(self, message: Message, version: int) -> None:
        self._socket.sendall(wire.encode_request(message, version, 1, "benchmark"))

    def receive(self, message: Message, version: int) -> Any:
        """The next answer, which is that to a request of the type of `message`."""
        (size,) = struct.unpack(">i", self._reader.read(4))
        return wire.decode_response(wire.find_api_of(message).response, version, self._reader.read(size))[1]

    def ask(self, message: Message, version: int) -> Any:
        self.send(message, version)
        return self.receive(message, version)

    def ask_until_accepted(self, message: Message, version: int) -> Any:
        """Repeat the request while its answer has an error: a coordinator may have to be created, or be loading."""
        end = time.monotonic() + PATIENCE_SECONDS
        while errors := find_errors(answer := self.ask(message, version)):
            if time.monotonic() > end:
                raise TimeoutError(f"{type(message).__name__} has error {errors[0]} for {PATIENCE_SECONDS:g} s")
            time.sleep(RETRY_SECONDS)
        return answer


@contextmanager
def connect(broker: BrokerProcess) -> Iterator[RequestClient]:
    client = RequestClient(broker)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def connect_many(broker: BrokerProcess, count: int) -> Iterator[list[RequestClient]]:
    clients: list[RequestClient] = []
    try:
        for _ in range(count):
            clients.append(RequestClient(broker))
        yield clients
    finally:
        for client in clients:
            client.close()
