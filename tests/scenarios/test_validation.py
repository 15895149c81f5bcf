"""The validation of records: error codes, what is stored, and the cost of hostile batches."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import time

import pytest

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.records.batch import BatchHeader, encode, headers, repack
from ottla.records.compression import NAMES, compress
from ottla.records.record import Fields
from tests.clients.child import HOST, ottla_up
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import create_topic, decode_records, make_batch, produce_batch, read_all_values
from tests.scenarios.memory import read_peak_kilobytes

HOUR = 3_600_000
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)


def now_ms() -> int:
    return int(time() * 1000)


def create_topic_with(client: RawClient, name: str, **settings: str) -> str:
    configs = {key.replace("_", "."): value for key, value in settings.items()}
    assert create_topic(client, name, configs=configs).error_code == 0
    return name


def make_noise_batch(number: int, size: int, codec: int = GZIP) -> bytearray:
    """A batch of one record that no codec makes smaller, so that it is checked in a thread if `size` is large."""
    return encode([(b"k", number.to_bytes(4, "big") + Random(number).randbytes(size), (), 1_000)], codec=codec)


@pytest.mark.parametrize("codec", (NONE, ZSTD))
def test_a_compacted_topic_names_every_record_without_a_key(codec: int, client: RawClient) -> None:
    # From version 8 on the answer lists them. The other records of the batch are not stored either.
    topic = create_topic_with(client, f"compacted-{codec}", cleanup_policy="compact")
    records: list[Fields] = [(b"k", b"0", (), 5), (None, b"1", (), 5), (b"", b"2", (), 5), (None, b"3", (), 5)]
    for version in (8, 9, 12):
        result = produce_batch(client, topic, encode(records, codec=codec), version=version)
        assert result.error_code == ErrorCode.INVALID_RECORD and result.base_offset == -1
        assert [index for index, _ in result.record_errors] == [1, 3]
        assert all(message for _, message in result.record_errors) and result.error_message
    old = produce_batch(client, topic, encode(records, codec=codec), version=7)
    assert (old.error_code, list(old.record_errors)) == (ErrorCode.INVALID_RECORD, [])
    assert produce_batch(client, topic, encode(records[::2], codec=codec)).base_offset == 0
    assert read_all_values(client, topic) == [b"0", b"2"]


def test_timestamps_far_from_the_time_of_the_broker_are_refused(client: RawClient, topic: str) -> None:
    # By default an hour ahead is too much, and nothing is too old.
    now = now_ms()
    ahead: list[Fields] = [(None, b"", (), now), (None, b"", (), now + 2 * HOUR)]
    result = produce_batch(client, topic, encode(ahead))
    assert result.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in result.record_errors] == [1]
    assert produce_batch(client, topic, encode([(None, b"old", (), 1)])).error_code == 0
    strict = create_topic_with(client, "strict-times", message_timestamp_before_max_ms=str(HOUR))
    assert produce_batch(client, strict, encode([(None, b"old", (), 1)])).error_code == ErrorCode.INVALID_TIMESTAMP
    assert read_all_values(client, topic) == [b"old"] and read_all_values(client, strict) == []


def test_a_wrong_max_timestamp_is_corrected_before_it_is_stored(client: RawClient, topic: str) -> None:
    # A lookup by timestamp finds the batch, and its checksum is correct.
    data = make_batch(b"0", b"1", timestamp=1_000)
    batch.set_max_timestamp(data, 77)
    assert produce_batch(client, topic, data).error_code == 0
    stored = bytes(client.fetch(topic, 0, 0).records)  # type: ignore[arg-type]
    assert batch.check(stored).max_timestamp == 1_001


def test_zstd_is_refused_from_clients_that_do_not_know_it(client: RawClient, topic: str) -> None:
    # From Produce 7 on a client knows zstd. A topic whose own codec is zstd accepts batches of every version.
    for version in (3, 6):
        result = produce_batch(client, topic, make_batch(b"x", codec=ZSTD), version=version)
        assert result.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce_batch(client, topic, make_batch(b"x", codec=ZSTD), version=7).error_code == 0


@pytest.mark.parametrize("target", ("uncompressed", "gzip", "snappy", "lz4", "zstd"))
def test_a_topic_stores_every_batch_in_its_own_codec(target: str, client: RawClient) -> None:
    # Small batches are converted at once, large ones in a thread, from every codec.
    topic = create_topic_with(client, f"stored-in-{target}", compression_type=target)
    sent: list[bytes | None] = []
    for codec in range(5):
        for size in (100, 100_000):
            data = make_noise_batch(len(sent), size, codec)
            sent.append(batch.decode(data)[0].value)
            assert produce_batch(client, topic, data).base_offset == len(sent) - 1
    wanted = NAMES.index("none" if target == "uncompressed" else target)
    offset = 0
    found: list[bytes | None] = []
    while offset < len(sent):
        fetched = client.fetch(topic, 0, offset)
        records = decode_records(fetched)
        assert {header.codec for _, header in headers(bytes(fetched.records))} == {wanted}  # type: ignore[arg-type]
        found += [record.value for record in records]
        offset = records[-1].offset + 1
    assert found == sent


def test_a_batch_that_is_too_large_after_recompression_is_refused(client: RawClient) -> None:
    # The batch that is sent and the batch that is stored both have to be within the limit.
    unpacked = create_topic_with(client, "small-unpacked", max_message_bytes="1000", compression_type="uncompressed")
    small = encode([(None, bytes(20_000), (), 1_000)], codec=GZIP)
    assert len(small) < 1_000
    assert produce_batch(client, unpacked, small).error_code == ErrorCode.MESSAGE_TOO_LARGE
    packed = create_topic_with(client, "small-packed", max_message_bytes="1000", compression_type="gzip")
    large = encode([(None, bytes(20_000), (), 1_000)])
    assert produce_batch(client, packed, large).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_larger_than_a_segment_is_refused(client: RawClient) -> None:
    topic = create_topic_with(client, "small-segments", segment_bytes=str(1 << 20), max_message_bytes=str(4 << 20))
    result = produce_batch(client, topic, encode([(None, bytes(2 << 20), (), 1_000)]))
    assert result.error_code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_batches_stay_in_order_whether_checked_at_once_or_in_a_thread(client: RawClient, topic: str) -> None:
    # All are sent before the first answer. Small batches must not overtake the large ones before them.
    sent = []
    for number in range(40):
        data = make_noise_batch(number, 200_000 if number % 3 == 0 else 50)
        sent.append(batch.decode(data)[0].value)
        client.produce(topic, 0, data, acks=0)
    assert produce_batch(client, topic, make_noise_batch(40, 50)).base_offset == 40
    assert read_all_values(client, topic)[:40] == sent


def test_a_refused_batch_uses_no_sequence_number(client: RawClient, topic: str) -> None:
    # The producer can send the valid records again with the same sequence. A repeated valid batch is not stored twice.
    def first_of_producer(timestamp: int) -> bytearray:
        records: list[Fields] = [(b"k", Random(1).randbytes(50_000), (), timestamp)]
        return encode(records, codec=LZ4, producer_id=77, producer_epoch=0, base_sequence=0)

    refused = produce_batch(client, topic, first_of_producer(now_ms() + 9 * HOUR))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    good = first_of_producer(1_000)
    assert [produce_batch(client, topic, good).base_offset for _ in range(3)] == [0, 0, 0]
    assert len(read_all_values(client, topic)) == 1


def test_validation_is_the_same_with_and_without_machine_code(client: RawClient, topic: str) -> None:
    # 50,000 records, enough to load the machine code meanwhile. The last record of every twentieth batch is invalid.
    sound = encode([(b"k", b"v", (), 1_000)] * 1_000)
    wrong = bytearray(sound)
    wrong[-1] ^= 1
    batch.set_max_timestamp(wrong, 1_000)
    stored = 0
    for number in range(50):
        result = produce_batch(client, topic, wrong if number % 20 == 19 else sound)
        assert result.error_code == (ErrorCode.INVALID_RECORD if number % 20 == 19 else 0)
        stored += result.error_code == 0
    assert produce_batch(client, topic, make_batch(b"end")).base_offset == stored * 1_000


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of another process's memory is told by Linux only")
def test_large_decompressions_do_not_add_up_in_memory(tmp_path: Path, seed: int) -> None:
    # Eight clients at once send forty batches of 18 MB of zeros, in which no record can be read. Two are decompressed
    # at a time, and the memory of refused batches is freed.
    header = BatchHeader(0, 0, -1, 2, 0, 0, 0, 1_000, 1_000, -1, -1, -1, 1)
    bombs = [repack(header, codec, compress(codec, bytes(18_000_000)), 1_000) for codec in (GZIP, SNAPPY, LZ4, ZSTD)]

    def throw(number: int) -> list[int]:
        with RawClient(HOST, broker.port, timeout_s=PATIENCE_S) as client:
            order = Random(seed + number).sample(bombs * 2, 5)
            return [produce_batch(client, "bombs", bomb).error_code for bomb in order]

    with ottla_up(tmp_path / "data") as broker, RawClient(HOST, broker.port) as client:
        assert create_topic(client, "bombs").error_code == 0
        produce_batch(client, "bombs", make_batch(b"first", codec=ZSTD))
        before = read_peak_kilobytes(broker.process.pid)
        with ThreadPoolExecutor(8) as clients:
            results = [code for codes in clients.map(throw, range(8)) for code in codes]
        assert results == [ErrorCode.INVALID_RECORD] * 40
        assert read_all_values(client, "bombs") == [b"first"]
        assert read_peak_kilobytes(broker.process.pid) - before < 90_000
