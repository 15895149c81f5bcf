"""A Kafka client without logic of its own: one socket, any request in any version, no retries, no metadata.

    with RawClient("localhost", port) as client:
        answer = client.request(MetadataRequest(topics=None), version=12)
        result = client.produce("orders", 0, batch)

`send` and `read_frame` are for bytes that are no valid request.
"""

import socket
from collections.abc import Callable
from struct import Struct
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.wire import fetch, frames, produce
from ottla.wire.fetch import FetchRequest, FetchResponse
from ottla.wire.fetch import PartitionResult as Fetched
from ottla.wire.message import Message
from ottla.wire.primitives import Bytes, reader
from ottla.wire.produce import PartitionResult as Produced
from tests.patience import PATIENCE_MS, PATIENCE_S

Response = TypeVar("Response")

_SIZE = Struct(">i")
_HEADER = Struct(">hhih")
_CORRELATION_ID = Struct(">i")


class RawClient:
    def __init__(
        self, host: str, port: int, client_id: str = "raw", timeout_s: float = PATIENCE_S, source: str | None = None
    ) -> None:
        """`source`: the address that the broker sees. On Linux every 127.x.y.z is one of this machine."""
        from_address = None if source is None else (source, 0)
        self._socket = socket.create_connection((host, port), timeout_s, from_address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._sent = 0
        self._answered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For select: to wait for the first of several clients that has an answer."""
        return self._socket.fileno()

    # --- bytes ---

    def send(self, data: Bytes) -> None:
        """Send these bytes as they are, without a size in front."""
        self._socket.sendall(data)

    def send_frame(self, body: Bytes) -> None:
        self.send(_SIZE.pack(len(body)) + body)

    def read_frame(self) -> bytearray:
        """The next frame, without its size. Raises ConnectionError when the broker has closed the connection."""
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        return self._read(size)

    def is_closed_by_peer(self) -> bool:
        """Wait until the broker closes the connection, and ignore what it sends before. False after the timeout."""
        try:
            while self._socket.recv(65536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def _read(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                raise ConnectionError("closed by the other side")
            view = view[count:]
        return data

    # --- messages ---

    def request(self, message: Message, version: int) -> Any:
        """Send any message of `ottla.wire.messages` and wait for its response."""
        self.send_request(message, version)
        return self.read_response(message, version)

    def send_request(self, message: Message, version: int) -> None:
        """Only send, so that several requests can be in flight. `read_response` reads the answers in the same order."""
        self._sent += 1
        self.send(frames.encode_request(message, version, self._sent, self._client_id))

    def read_response(self, message: Message, version: int) -> Any:
        frame = self.read_frame()
        self._check_order(frame)
        return frames.decode_response(frames.find_api_of(message).response, version, frame)[1]

    def produce(
        self,
        topic: str | bytes,
        partition: int,
        records: Bytes,
        acks: int = -1,
        version: int | None = None,
        *,
        transactional_id: str | None = None,
        timeout_ms: int = PATIENCE_MS,
    ) -> Produced | None:
        """Send one batch to one partition of a topic, given by name or (from version 13) by id. None if acks is 0."""
        version = version or (12 if isinstance(topic, str) else 13)
        name, topic_id = _name_and_id(topic)
        data = produce.TopicData(name, topic_id, [produce.PartitionData(partition, memoryview(records))])
        request = produce.ProduceRequest(transactional_id, acks, timeout_ms, [data])
        compact = version >= produce.COMPACT_FROM
        self.send_frame(produce.write_request(version, request, self._header(0, version, compact)))
        if acks == 0:
            self._answered += 1
            return None
        return self._answer(produce.read_response, version, compact).topics[0].partitions[0]

    def fetch(
        self,
        topic: str | bytes,
        partition: int,
        offset: int,
        version: int | None = None,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 2**31 - 1,
        isolation_level: int = 0,
    ) -> Fetched:
        """Fetch one partition of a topic, given by name or (from version 13) by id, without a session."""
        version = version or (12 if isinstance(topic, str) else 18)
        name, topic_id = _name_and_id(topic)
        wanted = fetch.FetchPartition(partition, fetch_offset=offset, max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            topics=[fetch.FetchTopic(name, topic_id, [wanted])],
        )
        return self.fetch_whole(request, version).topics[0].partitions[0]

    def fetch_whole(self, request: FetchRequest, version: int) -> FetchResponse:
        """Send any Fetch request. Returns its whole response."""
        self.send_fetch(request, version)
        return self.read_fetch(version)

    def send_fetch(self, request: FetchRequest, version: int) -> None:
        """Only send, so that the test can produce while the broker waits for records. `read_fetch` reads the answer."""
        compact = version >= fetch.COMPACT_FROM
        self.send_frame(fetch.write_request(version, request, self._header(1, version, compact)))

    def read_fetch(self, version: int) -> FetchResponse:
        return self._answer(fetch.read_response, version, version >= fetch.COMPACT_FROM)

    def _header(self, api_key: int, version: int, compact: bool) -> bytes:
        self._sent += 1
        client_id = self._client_id.encode()
        return _HEADER.pack(api_key, version, self._sent, len(client_id)) + client_id + (b"\0" if compact else b"")

    def _answer(self, read: Callable[[int, Bytes, int], Response], version: int, compact: bool) -> Response:
        frame = self.read_frame()
        self._check_order(frame)
        header = reader(memoryview(frame), _CORRELATION_ID.size, compact)
        header.skip_tags()
        return read(version, frame, header.position)

    def _check_order(self, frame: bytearray) -> None:
        """Correlation ids count the requests, so those of the answers must count up as well."""
        self._answered += 1
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        assert correlation_id == self._answered, f"answer to {correlation_id}, not to {self._answered}"


def _name_and_id(topic: str | bytes) -> tuple[str, bytes]:
    return (topic, bytes(16)) if isinstance(topic, str) else ("", topic)
