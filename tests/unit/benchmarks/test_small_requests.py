"""The hand-made Metadata request is one that Kafka's schema can read, and a refusal is told from an answer."""

import io
import struct

import pytest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.request_header.v2.header import RequestHeader
from kio.serial import entity_reader

from benchmarks.small_requests import CORRELATION_AT, WrongAnswer, metadata_request, topic_error


def test_the_request_is_what_the_schema_says() -> None:
    # Read back by another implementation, to the last byte.
    frame = metadata_request("orders")
    struct.pack_into(">i", frame, CORRELATION_AT, 77)
    stream = io.BytesIO(bytes(frame))
    assert struct.unpack(">i", stream.read(4))[0] == len(frame) - 4
    data = stream.read()
    header, used = entity_reader(RequestHeader)(data, 0)
    body, more = entity_reader(MetadataRequest)(data, used)
    assert (header.request_api_version, header.correlation_id, header.client_id) == (12, 77, "benchmark")
    assert body.topics is not None
    assert [topic.name for topic in body.topics] == ["orders"]
    assert body.allow_auto_topic_creation is False
    assert used + more == len(data)


def test_the_error_of_a_topic_stands_before_its_name() -> None:
    # A broker that answers quickly with an error must not look fast.
    name = b"\x07orders"
    assert topic_error(b"\0\0\0\0" + struct.pack(">h", 3) + name, "orders") == 3
    with pytest.raises(WrongAnswer):
        topic_error(b"\0" * 40, "orders")
