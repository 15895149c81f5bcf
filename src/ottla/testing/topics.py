"""Creates topics with a single request on a socket, without a client library and its threads."""

import socket
from collections.abc import Mapping
from struct import Struct

from ottla.errors import ErrorCode, KafkaError
from ottla.testing.launch import PATIENCE_S
from ottla.wire import frames
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

VERSION = 7

_SIZE = Struct(">i")


def create_topic(
    host: str, port: int, name: str, partitions: int, configs: Mapping[str, str], replication_factor: int = -1
) -> None:
    """Creates a topic, with default.replication.factor replicas if none is given. KafkaError if it is refused."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(PATIENCE_S * 1000))
    with socket.create_connection((host, port), PATIENCE_S) as connection:
        connection.sendall(frames.encode_request(request, VERSION, correlation=1, client_id="ottla-testing"))
        (size,) = _SIZE.unpack(_read_exactly(connection, _SIZE.size))
        frame = _read_exactly(connection, size)
    (result,) = frames.decode_response(CreateTopicsResponse, VERSION, frame)[1].topics
    if result.error_code:
        raise KafkaError(ErrorCode(result.error_code), result.error_message or "")


def _read_exactly(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        received = connection.recv(length - len(data))
        if not received:
            raise ConnectionError("the broker closed the connection")
        data += received
    return data
