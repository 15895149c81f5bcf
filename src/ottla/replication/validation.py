"""What a leader asks of the records that a producer sent, beyond what the header of their batch tells (`batch`).

Every record can be read and fills its length, their number and their offset deltas are the ones that the header
announces, nothing follows them, they have keys where the topic is compacted, and times that are near enough to the
broker's. Kafka lets some of it pass in some codecs (it never looks at the offset deltas of an uncompressed batch, nor
at the lengths of compressed records); here all batches are held to the same, or a consumer would stumble over them.

What Kafka mends is mended: the header's max timestamp becomes that of the records, and a batch in another codec than
the topic's is packed anew. Everything else is stored as it came.

A compressed batch may not unfold to more than 20 times max.message.bytes (16 MiB where that is less). Kafka has no such
limit: there a few kilobytes can take the broker's memory. Text and JSON rarely shrink to a tenth. The error says that
the batch is too large, which makes a Java producer split it and try again.
"""

from typing import NamedTuple

from ottla import batch, columns
from ottla.batch import CODEC_MASK, HEADER_SIZE, BatchHeader
from ottla.columns import Bounds, Survey, Surveyor
from ottla.compression import GZIP, LZ4, NAMES, NONE, SNAPPY, ZSTD, CorruptBatch, TooLarge, compress, decompress
from ottla.config import TopicConfig
from ottla.errors import ErrorCode, KafkaError

RECORD_ERRORS_MAX = 1_000
"""An answer does not name more records than this; the batch is refused as a whole in any case."""

UNPACKED_BYTES_MIN = 16 << 20
UNPACKED_RATIO = 20

CODECS = {"producer": None, "uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""compression.type -> what batches are packed with, None if with whatever they came."""

LOG_APPEND_TIME = "LogAppendTime"


class RefusedRecords(KafkaError):
    """A batch with records that this topic does not take; which and why, by their place in the batch."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class Checked(NamedTuple):
    """A batch that may be appended, and its header."""

    records: memoryview
    header: BatchHeader


def unpacked_bytes_max(config: TopicConfig) -> int:
    """What one batch of this topic may unfold to."""
    return max(UNPACKED_BYTES_MIN, UNPACKED_RATIO * int(config.max_message_bytes))


def is_packed_anew(header: BatchHeader, config: TopicConfig) -> bool:
    codec = CODECS[config.compression_type]
    return codec is not None and codec != header.attributes & CODEC_MASK


def validated(
    records: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int, survey: Surveyor, unpacked_max: int
) -> Checked:
    """The batch as it is to be stored; `records` may be changed in place.

    KafkaError if it is refused, TooLarge if it unfolds to more than `unpacked_max`.
    """
    body = records[HEADER_SIZE:]
    codec = header.attributes & CODEC_MASK
    try:
        data = body if codec == NONE else decompress(codec, body, unpacked_max)
    except TooLarge:
        raise
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"The records cannot be unpacked: {error}") from None
    bounds = bounds_of(header, config, now_ms)
    found = survey(data, header.record_count, bounds, columns.BEGIN)
    if found.verdict != columns.SOUND:
        raise refusal(data, header.record_count, bounds, found, survey)
    if is_packed_anew(header, config):
        packed = packed_anew(data, header, config, found.max_timestamp)
        return Checked(memoryview(packed), batch.read_header(packed))
    if found.max_timestamp != header.max_timestamp and config.message_timestamp_type != LOG_APPEND_TIME:
        header = batch.set_max_timestamp(records, found.max_timestamp)
    return Checked(records, header)


def bounds_of(header: BatchHeader, config: TopicConfig, now_ms: int) -> Bounds:
    keys_required = "compact" in config.cleanup_policy
    if config.message_timestamp_type == LOG_APPEND_TIME:
        return Bounds(header.base_timestamp, keys_required=keys_required)
    return Bounds(
        header.base_timestamp,
        max(now_ms - config.message_timestamp_before_max_ms, columns.TIME_MIN),
        min(now_ms + config.message_timestamp_after_max_ms, columns.TIME_MAX),
        keys_required,
    )


def packed_anew(data: batch.Bytes, header: BatchHeader, config: TopicConfig, max_timestamp: int) -> bytearray:
    codec = CODECS[config.compression_type]
    assert codec is not None
    levels = {
        GZIP: config.compression_gzip_level, LZ4: config.compression_lz4_level, ZSTD: config.compression_zstd_level,
    }  # fmt: skip
    return batch.repack(header, codec, compress(codec, data, levels.get(codec)), max_timestamp)


def refusal(data: batch.Bytes, count: int, bounds: Bounds, found: Survey, survey: Surveyor) -> KafkaError:
    """Why a batch is refused: for what cannot be read in it, or for all records that the topic does not take."""
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    while found.verdict in (columns.NO_KEY, columns.TIME):
        if found.verdict == columns.TIME:
            code = ErrorCode.INVALID_TIMESTAMP
            message = f"Timestamp {found.timestamp} is not within {bounds.earliest} to {bounds.latest}"
        else:
            message = "A compacted topic takes no record without a key"
        errors.append((found.record, message))
        if len(errors) == RECORD_ERRORS_MAX:
            break
        found = survey(data, count, bounds, found)
    else:
        if found.verdict != columns.SOUND:
            return KafkaError(ErrorCode.INVALID_RECORD, unreadable(found, count))
    more = " or more" if len(errors) == RECORD_ERRORS_MAX else ""
    summary = f"{len(errors)}{more} of {count} records are refused; the first is record {errors[0][0]}: {errors[0][1]}"
    return RefusedRecords(code, summary, errors)


def unreadable(found: Survey, count: int) -> str:
    if found.verdict == columns.MISSING:
        return f"The batch announces {count} records and has {found.record}"
    if found.verdict == columns.STRUCTURE:
        return f"Record {found.record} of the batch cannot be read"
    if found.verdict == columns.OFFSET:
        return f"The offset delta of record {found.record} is another one"
    return f"There are bytes after record {count - 1}, the last that the batch announces"


def too_large(header: BatchHeader, unpacked_max: int) -> KafkaError:
    message = f"{header.size} bytes of {NAMES[header.codec]} unpack to more than {unpacked_max}"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
