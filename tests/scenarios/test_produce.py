"""Produce: which batches the broker refuses, with which codes, and what it changes in those that it stores."""

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from ottla.errors import ErrorCode
from ottla.records.batch import HEADER_SIZE, check, encode, read_header
from ottla.records.compression import compress
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData, read_response, write_request
from tests.clients.child import HOST, ottla_up
from tests.patience import PATIENCE_MS
from tests.raw_client import RawClient
from tests.scenarios.client_calls import (
    append,
    connect,
    create_topic,
    decode_records,
    decode_values,
    make_batch,
    produce_batch,
    read_all_values,
)
from tests.scenarios.memory import read_peak_kilobytes

GZIP, SNAPPY, LZ4, ZSTD = range(1, 5)
SIZE_OF_A_BOMB = 200_000_000


def change_field(at: int, form: str, value: int, *, seal: bool = True) -> bytearray:
    """A valid batch of two records with one header field changed. `seal` corrects the checksum."""
    batch = make_batch(b"one", b"two")
    struct.pack_into(form, batch, at, value)
    return fix_checksum(batch) if seal else batch


def fix_checksum(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def make_with_attributes(attributes: int) -> bytearray:
    return change_field(21, ">h", attributes)


def make_with_body(body: bytes, count: int = 2, codec: int = 0) -> bytearray:
    """A valid header before a body that does not match it."""
    batch = make_batch(*[b"x"] * count, codec=codec)[:HEADER_SIZE] + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return fix_checksum(batch)


def make_body(*values: bytes) -> bytes:
    return bytes(make_batch(*values)[HEADER_SIZE:])


def make_old_message_set(magic: int) -> bytearray:
    """A message set as clients before Kafka 0.11 sent it."""
    return bytearray(struct.pack(">qiIbb", 0, 22, 0, magic, 0) + bytes(24))


REFUSED: dict[str, tuple[Callable[[], bytearray], ErrorCode]] = {
    "wrong checksum": (lambda: change_field(60, ">b", 9, seal=False), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (lambda: make_old_message_set(0), ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: make_old_message_set(1), ErrorCode.INVALID_RECORD),
    "magic 3": (lambda: change_field(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "control batch": (lambda: make_with_attributes(0x20), ErrorCode.INVALID_RECORD),
    "codec 7": (lambda: make_with_attributes(7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "append time": (lambda: make_with_attributes(8), ErrorCode.INVALID_TIMESTAMP),
    "count above the last offset": (lambda: change_field(57, ">i", 3), ErrorCode.INVALID_RECORD),
    "count below the last offset": (lambda: change_field(57, ">i", 1), ErrorCode.INVALID_RECORD),
    "count zero": (lambda: change_field(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "count 2^31-1": (lambda: change_field(57, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
    "last offset beyond": (lambda: change_field(23, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
    "last offset negative": (lambda: change_field(23, ">i", -1), ErrorCode.INVALID_RECORD),
    "length negative": (lambda: change_field(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "length too long": (lambda: change_field(8, ">i", 10_000), ErrorCode.INVALID_RECORD),
    "fewer records than it says": (lambda: make_with_body(make_body(b"one"), 2), ErrorCode.INVALID_RECORD),
    "more records than it says": (
        lambda: make_with_body(make_body(b"one", b"two", b"three"), 2),
        ErrorCode.INVALID_RECORD,
    ),
    "no records": (lambda: make_with_body(b"", 2), ErrorCode.INVALID_RECORD),
    "records cut off": (lambda: make_with_body(make_body(b"one", b"two")[:-2], 2), ErrorCode.INVALID_RECORD),
    "records that are none": (lambda: make_with_body(b"\xff" * 30, 2), ErrorCode.INVALID_RECORD),
    "not gzip": (lambda: make_with_body(b"\xff" * 30, 2, GZIP), ErrorCode.INVALID_RECORD),
    "not snappy": (lambda: make_with_body(b"\xff" * 30, 2, SNAPPY), ErrorCode.INVALID_RECORD),
    "not lz4": (lambda: make_with_body(b"\xff" * 30, 2, LZ4), ErrorCode.INVALID_RECORD),
    "not zstd": (lambda: make_with_body(b"\xff" * 30, 2, ZSTD), ErrorCode.INVALID_RECORD),
    "gzip cut off": (
        lambda: make_with_body(bytes(compress(GZIP, make_body(b"one", b"two")))[:-9], 2, GZIP),
        ErrorCode.INVALID_RECORD,
    ),
    "two batches": (lambda: make_batch(b"one") + make_batch(b"two"), ErrorCode.INVALID_RECORD),
    "nothing": (lambda: bytearray(), ErrorCode.INVALID_RECORD),
    "a few bytes": (lambda: bytearray(b"hello"), ErrorCode.INVALID_RECORD),
    "producer without sequence": (
        lambda: make_batch(b"one", producer_id=5, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "transaction without its id": (
        lambda: make_batch(b"one", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_batch_is_refused_and_leaves_no_trace(name: str, client: RawClient, topic: str) -> None:
    # The code is Kafka's, the connection stays open, and the next batch gets the offset that the refused one would have
    # had.
    make, code = REFUSED[name]
    append(client, topic, b"before")
    result = produce_batch(client, topic, make())
    assert (ErrorCode(result.error_code), result.base_offset) == (code, -1)
    assert append(client, topic, b"after") == 1
    assert read_all_values(client, topic) == [b"before", b"after"]


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of another process's memory is told by Linux only")
def test_decompression_bombs_do_not_take_memory(tmp_path: Path) -> None:
    # 200 MB of zeros in one batch, with every codec. The broker decompresses to check the records, but only up to a
    # limit: then it refuses the batch, writes nothing, and has not needed the memory.
    bombs = []
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        bomb = make_batch(b"", codec=codec)[:HEADER_SIZE] + compress(codec, bytes(SIZE_OF_A_BOMB))
        struct.pack_into(">i", bomb, 8, len(bomb) - 12)
        bombs.append(fix_checksum(bomb))
    with ottla_up(tmp_path / "data") as broker, RawClient(HOST, broker.port) as client:
        assert create_topic(client, "bombs").error_code == 0
        before = read_peak_kilobytes(broker.process.pid)
        results = [produce_batch(client, "bombs", bomb).error_code for bomb in bombs]
        assert results == [ErrorCode.MESSAGE_TOO_LARGE] * 4
        assert read_all_values(client, "bombs") == []
        assert read_peak_kilobytes(broker.process.pid) - before < 120_000


@pytest.mark.parametrize("acks", (2, -2, 32767))
def test_acks_that_do_not_exist_are_refused(acks: int, client: RawClient, topic: str) -> None:
    assert produce_batch(client, topic, make_batch(b"one"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert read_all_values(client, topic) == []


def test_each_partition_of_a_request_has_its_own_result(shared_broker: LocalBroker, client: RawClient) -> None:
    # Three partitions, one of them unknown and one batch damaged: the third is written.
    shared_broker.create_topic("three", 3)
    parts = [
        PartitionData(0, memoryview(change_field(60, ">b", 9, seal=False))),
        PartitionData(9, memoryview(make_batch(b"nowhere"))),
        PartitionData(2, memoryview(make_batch(b"good"))),
    ]
    request = ProduceRequest(acks=-1, timeout_ms=PATIENCE_MS, topics=[TopicData("three", partitions=parts)])
    client.send_frame(write_request(9, request, struct.pack(">hhihb", 0, 9, 1, -1, 0)))
    frame = client.read_frame()
    (answered,) = read_response(9, frame, 5).topics
    assert [(each.index, each.error_code) for each in answered.partitions] == [
        (0, ErrorCode.CORRUPT_MESSAGE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, 0),
    ]


@pytest.mark.parametrize("why", ("wrong batch", "unknown topic", "unknown partition"))
def test_an_error_without_acknowledgement_closes_the_connection(
    why: str, shared_broker: LocalBroker, client: RawClient, topic: str
) -> None:
    # With acks=0 there is no answer for the error. The client has to connect again, and then asks for metadata.
    with connect(shared_broker) as careless:
        careless.produce(topic, 0, make_batch(b"good"), acks=0)
        if why == "wrong batch":
            careless.produce(topic, 0, change_field(60, ">b", 9, seal=False), acks=0)
        else:
            careless.produce("nobody" if why == "unknown topic" else topic, 7, make_batch(b"bad"), acks=0)
        assert careless.is_closed_by_peer()
    assert read_all_values(client, topic) == [b"good"]


def test_batches_with_acks_0_stay_in_order(client: RawClient, topic: str) -> None:
    # Many of them on one connection, then one with acks=all: when it is answered, all are written.
    for number in range(500):
        client.produce(topic, 0, make_batch(b"%d" % number), acks=0)
    assert append(client, topic, b"last") == 500
    assert read_all_values(client, topic) == [b"%d" % number for number in range(500)] + [b"last"]


def test_a_batch_is_stored_as_it_came_except_offset_and_epoch(client: RawClient, topic: str) -> None:
    # Every byte from the attributes on is the same, with every codec: the broker does not compress again.
    for codec in range(5):
        sent = encode([(b"key", b"value" * 50, (("header", None),), 5)] * 3, codec=codec)
        offset = produce_batch(client, topic, bytearray(sent)).base_offset
        stored = client.fetch(topic, 0, offset).records
        assert isinstance(stored, memoryview | bytes | bytearray)
        assert bytes(stored[8:12]) + bytes(stored[16:]) == bytes(sent[8:12] + sent[16:])
        assert read_header(stored).base_offset == offset == codec * 3


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_is_the_time_of_the_broker(codec: int, shared_broker: LocalBroker, client: RawClient) -> None:
    # The answer has the timestamp. Every record has it, also in a compressed batch, and the checksum is correct.
    name = f"append-time-{codec}"
    shared_broker.create_topic(name, message_timestamp_type="LogAppendTime")
    before = shared_broker.now_ms
    result = produce_batch(client, name, make_batch(b"one", b"two", timestamp=5, codec=codec))
    assert before <= result.log_append_time_ms <= shared_broker.now_ms
    fetched = client.fetch(name, 0, 0)
    assert {record.timestamp for record in decode_records(fetched)} == {result.log_append_time_ms}
    assert isinstance(fetched.records, memoryview | bytes | bytearray)
    assert check(fetched.records).max_timestamp == result.log_append_time_ms


def test_create_time_is_the_time_of_the_client(client: RawClient, topic: str) -> None:
    result = produce_batch(client, topic, make_batch(b"one", timestamp=5))
    assert result.log_append_time_ms == -1
    assert decode_records(client.fetch(topic, 0, 0))[0].timestamp == 5


def test_max_message_bytes_limits_a_topic(client: RawClient) -> None:
    # One byte more is answered MESSAGE_TOO_LARGE. Nothing is written, and the connection stays open.
    assert create_topic(client, "small", configs={"max.message.bytes": "1000"}).error_code == 0
    fits = make_batch(bytes(1000 - len(make_batch(bytes(900))) + 900))
    assert len(fits) == 1000
    assert produce_batch(client, "small", fits).error_code == 0
    too_large = make_batch(bytes(1001 - len(make_batch(bytes(900))) + 900))
    assert produce_batch(client, "small", too_large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert len(read_all_values(client, "small")) == 1


def test_message_max_bytes_limits_all_topics() -> None:
    with local_broker(message_max_bytes=5000) as broker:
        broker.create_topic("default")
        with connect(broker) as client:
            assert produce_batch(client, "default", make_batch(bytes(6000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert decode_values(client.fetch("default", 0, 0)) == []


@pytest.mark.parametrize("name", ("__consumer_offsets", "__transaction_state"))
def test_clients_cannot_write_to_internal_topics(name: str, client: RawClient) -> None:
    # The write is refused whether the internal topic exists or not.
    code = produce_batch(client, name, make_batch(b"forged")).error_code
    assert code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
