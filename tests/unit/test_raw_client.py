"""The raw client against a listener that a test controls: what it sends, and how it reads the answer."""

import socket
from collections.abc import Iterator
from struct import pack

import pytest

from ottla.storage.files import FileSlice
from ottla.wire import fetch, frames, produce
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient


class Wire:
    """A client and the other end of its connection."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.client = RawClient("127.0.0.1", listener.getsockname()[1], timeout_s=PATIENCE_S)
            self.peer = listener.accept()[0]
        self.peer.settimeout(PATIENCE_S)

    def answer(self, frame: bytes) -> None:
        self.peer.sendall(pack(">i", len(frame)) + frame)

    def sent(self) -> bytes:
        """The frame that the client sent, without its size."""
        data = self.peer.recv(65536)
        assert pack(">i", len(data) - 4) == data[:4]
        return data[4:]


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    with wire.client, wire.peer:
        yield wire


def test_any_message_is_asked_and_answered(wire: Wire) -> None:
    # A request gets the header of its version, and the answer is read as that version of the response.
    api = frames.find_api_by_folder("metadata")
    response = MetadataResponse(cluster_id="here", controller_id=3)
    wire.answer(bytes(frames.encode_response(api, 12, response, frames.response_header(api, 12, 1))))
    assert wire.client.request(MetadataRequest(topics=None), 12) == response
    sent = wire.sent()
    header = frames.read_request_header(sent)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (3, 12, 1, "raw")
    assert frames.decode_request(api, 12, sent, header.end).topics is None


@pytest.mark.parametrize(("version", "topic"), [(3, "orders"), (12, "orders"), (13, bytes(range(16)))])
def test_produce_sends_one_batch_and_reads_its_result(wire: Wire, version: int, topic: str | bytes) -> None:
    # Both encodings, with topics by name and by id.
    api = frames.find_api_by_folder("produce")
    result = produce.PartitionResult(2, 0, 42)
    response = produce.ProduceResponse([produce.TopicResult("orders", bytes(range(16)), [result])])
    wire.answer(bytes(produce.write_response(version, response, frames.response_header(api, version, 1))))
    assert wire.client.produce(topic, 2, b"batch", acks=1, version=version) == result
    sent = wire.sent()
    request = produce.read_request(version, sent, frames.read_request_header(sent).end)
    assert (request.acks, bytes(request.topics[0].partitions[0].records or b"")) == (1, b"batch")
    assert topic in (request.topics[0].name, request.topics[0].topic_id)


def test_produce_without_acknowledgement_waits_for_nothing(wire: Wire) -> None:
    # acks=0 has no answer.
    assert wire.client.produce("orders", 0, b"batch", acks=0) is None
    assert b"batch" in wire.sent()


@pytest.mark.parametrize(("version", "topic"), [(4, "orders"), (12, "orders"), (18, bytes(range(16)))])
def test_fetch_asks_for_one_partition_and_reads_its_records(wire: Wire, version: int, topic: str | bytes) -> None:
    # Both encodings, with topics by name and by id.
    api = frames.find_api_by_folder("fetch")
    result = fetch.PartitionResult(2, 0, 43, 43, records=b"batch")
    response = fetch.FetchResponse(topics=[fetch.TopicResult("orders", bytes(range(16)), [result])])
    parts = fetch.write_response(version, response, frames.response_header(api, version, 1))
    wire.answer(b"".join(part for part in parts if not isinstance(part, FileSlice)))
    fetched = wire.client.fetch(topic, 2, 42, version, max_wait_ms=7)
    assert (fetched.index, fetched.high_watermark, fetched.records) == (2, 43, b"batch")
    sent = wire.sent()
    request = fetch.read_request(version, sent, frames.read_request_header(sent).end)
    assert (request.max_wait_ms, request.topics[0].partitions[0].fetch_offset) == (7, 42)
    assert topic in (request.topics[0].name, request.topics[0].topic_id)


def test_answer_to_another_request_is_noticed(wire: Wire) -> None:
    # Answers come in order, so another correlation id is a mistake of the broker.
    api = frames.find_api_by_folder("fetch")
    wire.answer(frames.response_header(api, 12, 99))
    with pytest.raises(AssertionError, match="answer to 99"):
        wire.client.fetch("orders", 0, 0)
    wire.answer(frames.response_header(frames.find_api_by_folder("metadata"), 12, 99) + bytes(30))
    with pytest.raises(AssertionError, match="answer to 99"):
        wire.client.request(MetadataRequest(topics=None), 12)


def test_a_closed_connection_is_noticed(wire: Wire) -> None:
    # A connection that the broker closes is distinguished from one that is silent.
    wire.peer.close()
    with pytest.raises(ConnectionError):
        wire.client.read_frame()
    assert wire.client.is_closed_by_peer()
