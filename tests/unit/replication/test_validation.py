"""What a leader asks of a producer's records: Kafka's rules, one by one, and the same by Python and machine code."""

import gzip
from typing import Any

import pytest

from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch, columns
from ottla.records.batch import HEADER_SIZE, BatchHeader
from ottla.records.columns import Surveyor
from ottla.records.compression import NAMES, TooLarge, compress
from ottla.records.record import Fields, write_record
from ottla.replication.validation import (
    RECORD_ERRORS_MAX,
    CheckedBatch,
    RefusedRecords,
    Rules,
    validate,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000
ROOM = 1 << 20


@pytest.fixture(params=["python", "native"])
def survey(request: pytest.FixtureRequest) -> Surveyor:
    return columns.survey if request.param == "python" else columns.compile_survey()


def settings(**config: str) -> TopicConfig:
    return TopicConfig.of({name.replace("_", "."): value for name, value in config.items()}, BrokerConfig.of({}))


def keyed(*times: int) -> list[Fields]:
    return [(b"key", b"value", (), time) for time in times]


def checked(
    data: bytearray, config: TopicConfig | None = None, survey: Surveyor = columns.survey, room: int = ROOM
) -> CheckedBatch:
    header = batch.check_client_batch(data)
    return validate(memoryview(data), header, Rules.of(config or settings()), NOW, survey, room)


def refused(data: bytearray, config: TopicConfig | None = None, survey: Surveyor = columns.survey) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        checked(data, config, survey)
    assert caught.value.message
    return caught.value


def batch_of(body: bytes, count: int, codec: int = 0, *, packed: bool = True, **fields: Any) -> bytearray:
    """A batch with a sound header and whatever inside."""
    header = BatchHeader(0, 0, -1, 2, 0, 0, count - 1, NOW, NOW, -1, -1, -1, count)._replace(**fields)
    return batch.repack(header, codec, compress(codec, body) if packed else body, header.max_timestamp)


def record(offset: int) -> bytes:
    target = bytearray()
    write_record(target, 0, offset, b"k", b"v", ())
    return bytes(target)


@pytest.mark.parametrize("codec", range(5))
def test_a_sound_batch_is_stored_as_it_came(codec: int, survey: Surveyor) -> None:
    # Not one byte is other than the producer sent it: no copy, no new checksum.
    data = batch.encode(keyed(NOW, NOW + 5, NOW - 5), codec=codec)
    before = bytes(data)
    result = checked(data, survey=survey)
    assert result.records.obj is data and data == before
    assert result.header == batch.read_header(data)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(record(0), 2, id="a record too few"),
        pytest.param(record(0) + record(1), 1, id="a record too many"),
        pytest.param(record(0) + b"\0", 1, id="a byte too many"),
        pytest.param(record(0) + record(2), 2, id="an offset left out"),
        pytest.param(record(0) + record(0), 2, id="an offset twice"),
        pytest.param(b"\x7f" + record(0)[1:], 1, id="a record longer than the batch"),
        pytest.param(record(0)[:-1] + b"\1", 1, id="minus one headers"),
    ],
)
def test_records_that_are_not_what_the_header_says(body: bytes, count: int, codec: int, survey: Surveyor) -> None:
    # In every codec alike, and as a whole: no record of the batch is to blame.
    error = refused(batch_of(body, count, codec), survey=survey)
    assert error.code == ErrorCode.INVALID_RECORD and not isinstance(error, RefusedRecords)


@pytest.mark.parametrize("codec", range(5))
def test_a_compacted_topic_names_every_record_without_a_key(codec: int, survey: Surveyor) -> None:
    # A delete-only topic takes them; an empty key is a key.
    records: list[Fields] = [(b"", b"0", (), NOW), (None, b"1", (), NOW), (b"k", None, (), NOW), (None, None, (), NOW)]
    checked(batch.encode(records, codec=codec), settings(), survey)
    for policy in ("compact", "compact,delete"):
        error = refused(batch.encode(records, codec=codec), settings(cleanup_policy=policy), survey)
        assert isinstance(error, RefusedRecords) and error.code == ErrorCode.INVALID_RECORD
        assert [index for index, _ in error.record_errors] == [1, 3]
        assert all("key" in message for _, message in error.record_errors)


def test_a_time_too_far_ahead_or_behind_is_named_by_its_record(survey: Surveyor) -> None:
    # An hour ahead is Kafka's default, there is no limit behind; the bounds themselves are within.
    times = (NOW, NOW + HOUR, NOW + HOUR + 1, NOW - 9_000 * HOUR, NOW + 2 * HOUR)
    error = refused(batch.encode(keyed(*times)), survey=survey)
    assert isinstance(error, RefusedRecords) and error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [2, 4]
    assert str(NOW + HOUR + 1) in error.record_errors[0][1]
    config = settings(message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="0")
    assert isinstance(error := refused(batch.encode(keyed(*times)), config, survey), RefusedRecords)
    assert [index for index, _ in error.record_errors] == [1, 2, 3, 4]
    checked(batch.encode(keyed(NOW - 1000, NOW)), config, survey)


def test_records_without_a_time_are_within_any_bounds(survey: Surveyor) -> None:
    # As in Kafka: -1 stands for none.
    config = settings(message_timestamp_before_max_ms="1000")
    assert checked(batch.encode(keyed(-1)), config, survey).header.max_timestamp == -1


def test_a_wrong_time_decides_the_code_where_keys_are_missing_too(survey: Surveyor) -> None:
    # One error for each record, the key's first.
    records: list[Fields] = [(None, b"", (), NOW), (b"k", b"", (), NOW + 9 * HOUR), (None, b"", (), NOW + 9 * HOUR)]
    error = refused(batch.encode(records), settings(cleanup_policy="compact"), survey)
    assert isinstance(error, RefusedRecords) and error.code == ErrorCode.INVALID_TIMESTAMP
    assert [(index, "key" in message) for index, message in error.record_errors] == [(0, True), (1, False), (2, True)]


def test_damage_behind_a_refused_record_is_what_is_told(survey: Surveyor) -> None:
    # Or a producer would drop that record, send the rest again and fail again.
    target = bytearray()
    write_record(target, 9 * HOUR, 0, b"k", b"v", ())
    error = refused(batch_of(bytes(target) + b"\0", 1), survey=survey)
    assert error.code == ErrorCode.INVALID_RECORD and not isinstance(error, RefusedRecords)


def test_the_answer_does_not_grow_with_the_refused_records(survey: Surveyor) -> None:
    # A small compressed batch can hold millions of them.
    records: list[Fields] = [(None, b"", (), NOW)] * (RECORD_ERRORS_MAX + 500)
    error = refused(batch.encode(records, codec=1), settings(cleanup_policy="compact"), survey)
    assert isinstance(error, RefusedRecords) and len(error.record_errors) == RECORD_ERRORS_MAX


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("told", [-1, NOW - 1, NOW + 99])
def test_a_wrong_max_timestamp_is_put_right(told: int, codec: int, survey: Surveyor) -> None:
    # Lookups by time and retention rely on it; Kafka does the same, and the checksum is right again.
    records = keyed(NOW - 50, NOW, NOW - 7)
    data = batch.encode(records, codec=codec)
    batch.set_max_timestamp(data, told)
    result = checked(data, survey=survey)
    assert result.header.max_timestamp == NOW
    assert batch.check(data) == result.header
    assert data == batch.encode(records, codec=codec)


def test_log_append_time_takes_any_time_and_leaves_the_header_to_the_append(survey: Surveyor) -> None:
    config = settings(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="0")
    data = batch.encode(keyed(5, NOW + 99 * HOUR))
    before = bytes(data)
    checked(data, config, survey)
    assert data == before


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", range(5))
def test_a_topic_with_a_codec_of_its_own_gets_every_batch_in_it(codec: int, target: str, survey: Surveyor) -> None:
    # Same records and header fields; a batch that is in that codec already stays as it came, at whatever level.
    records = keyed(NOW - 50, NOW, NOW - 7)
    data = batch.encode(records, codec=codec, producer_id=5, producer_epoch=1, base_sequence=7)
    batch.set_max_timestamp(data, NOW - 1)
    before = batch.read_header(data)
    result = checked(data, settings(compression_type=target), survey)
    wanted = NAMES.index("none" if target == "uncompressed" else target)
    assert (result.records.obj is data) == (codec == wanted)
    header = batch.check(result.records)
    assert header == result.header and header.codec == wanted and header.max_timestamp == NOW
    changed = {"crc": 0, "length": 0, "attributes": 0, "max_timestamp": 0}
    assert header._replace(**changed) == before._replace(**changed)
    assert [(each.key, each.timestamp) for each in batch.decode(result.records)] == [(b"key", r[3]) for r in records]


@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", "1", "9"), ("lz4", "1", "17"), ("zstd", "-131072", "22"), ("zstd", "-5", "19")]
)
def test_levels_have_their_effect(codec: str, low: str, high: str) -> None:
    text = b" ".join(b"%d squared is %d" % (number, number * number) for number in range(3_000))
    records: list[Fields] = [(None, text, (), NOW)]
    sizes = []
    for level in (low, high):
        config = settings(compression_type=codec, **{f"compression_{codec}_level": level})
        result = checked(batch.encode(records), config)
        assert batch.decode(result.records)[0].value == text
        sizes.append(len(result.records))
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("codec", range(1, 5))
@pytest.mark.parametrize("body", [b"", b"garbage garbage", b"\xff" * 100])
def test_what_does_not_unpack_is_no_record(body: bytes, codec: int) -> None:
    assert refused(batch_of(body, 1, codec, packed=False)).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_compressed_batch_that_was_cut_is_refused(codec: int) -> None:
    packed = bytes(compress(codec, record(0) + record(1)))
    assert refused(batch_of(packed[:-3], 2, codec, packed=False)).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_batch_unfolds_to_so_much_and_no_more(codec: int) -> None:
    # The limit is the caller's; one byte less than the records need is too little.
    data = batch.encode([(None, bytes(300_000), (), NOW)], codec=codec)
    size = len(batch.encode([(None, bytes(300_000), (), NOW)])) - HEADER_SIZE
    checked(data, room=size)
    with pytest.raises(TooLarge):
        checked(data, room=size - 1)


def test_a_topic_of_large_messages_may_unfold_to_more() -> None:
    assert Rules.of(settings(max_message_bytes="1000")).unpacked_bytes_max == 16 << 20
    assert Rules.of(settings(max_message_bytes="10000000")).unpacked_bytes_max == 200_000_000


def test_a_batch_of_many_gzip_members_is_read_as_java_reads_it() -> None:
    body = gzip.compress(record(0)) + gzip.compress(record(1))
    assert checked(batch_of(body, 2, 1, packed=False)).header.record_count == 2
