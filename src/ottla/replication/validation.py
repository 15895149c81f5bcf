"""The checks of a leader on the records of a batch that a producer sent. `ottla.records.batch` checks the header.

Every record must be readable and fill its length; the number of records and their offset deltas must be those that the
header announces, with no bytes behind the last record; records need keys if the topic is compacted, and timestamps
within the topic's limits. Kafka skips some of these checks for some codecs: it never looks at the offset deltas of an
uncompressed batch, nor at the lengths of compressed records. Here all batches pass the same checks, because a consumer
would fail on such records.

Two things are corrected, as in Kafka: the header's max timestamp becomes that of the records, and a batch in another
codec than the topic's compression.type is recompressed. Everything else is stored as it was sent.

A compressed batch may not decompress to more than 20 times max.message.bytes, or 16 MiB if that is more. Kafka has no
such limit, so a few kilobytes can exhaust a broker's memory there. Text and JSON rarely shrink to less than a tenth.
The error is MESSAGE_TOO_LARGE, which makes a Java producer split the batch and try again.
"""

from dataclasses import dataclass

from ottla.config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch, columns
from ottla.records.batch import CODEC_MASK, HEADER_SIZE, BatchHeader
from ottla.records.columns import Bounds, Survey, Surveyor
from ottla.records.compression import GZIP, LZ4, NAMES, NONE, SNAPPY, ZSTD, CorruptBatch, TooLarge, compress, decompress

RECORD_ERRORS_MAX = 1_000
"""Records that an answer names at most. The batch is refused as a whole in any case."""

UNPACKED_BYTES_MIN = 16 << 20
UNPACKED_RATIO = 20

CODECS = {"producer": None, "uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""compression.type -> the codec that batches are stored in; None: the codec they were sent in."""


class RefusedRecords(KafkaError):
    """A batch is refused because of some of its records: `record_errors` has their positions in the batch and why."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings of a topic demand of its batches."""

    keys_required: bool
    append_time: bool
    """message.timestamp.type=LogAppendTime: the timestamps of the records are replaced, so they are not checked."""
    before_max_ms: int
    after_max_ms: int
    codec: int | None
    """The codec that batches are stored in; None: the codec they were sent in."""
    level: int | None
    unpacked_bytes_max: int

    @classmethod
    def of(cls, config: TopicConfig) -> "Rules":
        codec = CODECS[config.compression_type]
        levels = {
            GZIP: config.compression_gzip_level,
            LZ4: config.compression_lz4_level,
            ZSTD: config.compression_zstd_level,
        }
        return cls(
            "compact" in config.cleanup_policy,
            config.message_timestamp_type == "LogAppendTime",
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
            codec,
            None if codec is None else levels.get(codec),
            max(UNPACKED_BYTES_MIN, UNPACKED_RATIO * config.max_message_bytes),
        )

    def recompresses(self, header: BatchHeader) -> bool:
        """Whether the batch has to be stored in another codec."""
        return self.codec is not None and self.codec != header.attributes & CODEC_MASK

    def needs_no_checks(self, records: memoryview, header: BatchHeader, now_ms: int) -> bool:
        """Whether an uncompressed batch can be appended as it is: its one record passes every check at a glance."""
        time = header.base_timestamp
        if header.record_count != 1 or self.codec or time != header.max_timestamp:
            return False
        if not self.append_time and not now_ms - self.before_max_ms <= time <= now_ms + self.after_max_ms:
            return False
        return columns.is_plain_record(records, HEADER_SIZE, self.keys_required)

    def bounds(self, base_timestamp: int, now_ms: int) -> Bounds:
        if self.append_time:
            return Bounds(base_timestamp, columns.TIME_MIN, columns.TIME_MAX, self.keys_required)
        latest = now_ms + self.after_max_ms
        if latest > columns.TIME_MAX:
            latest = columns.TIME_MAX
        return Bounds(base_timestamp, now_ms - self.before_max_ms, latest, self.keys_required)


@dataclass(slots=True)
class CheckedBatch:
    """A batch that may be appended, and its header."""

    records: memoryview
    header: BatchHeader


def validate(
    records: memoryview, header: BatchHeader, rules: Rules, now_ms: int, survey: Surveyor, unpacked_max: int
) -> CheckedBatch:
    """Check the batch and return it as it has to be stored. `records` may be changed in place.

    Raises KafkaError if the batch is refused, TooLarge if it decompresses to more than `unpacked_max` bytes.
    """
    codec = header.attributes & CODEC_MASK
    data: batch.Bytes = records[HEADER_SIZE:]
    if codec != NONE:
        data = unpack(codec, data, unpacked_max)
    bounds = rules.bounds(header.base_timestamp, now_ms)
    found = survey(data, header.record_count, bounds, columns.BEGIN)
    if found.verdict != columns.SOUND:
        raise explain_refused_records(data, header.record_count, bounds, found, survey)
    if rules.codec is not None and rules.codec != codec:
        packed = batch.repack(header, rules.codec, compress(rules.codec, data, rules.level), found.max_timestamp)
        return CheckedBatch(memoryview(packed), batch.read_header(packed))
    if found.max_timestamp != header.max_timestamp and not rules.append_time:
        header = batch.set_max_timestamp(records, found.max_timestamp)
    return CheckedBatch(records, header)


def unpack(codec: int, data: batch.Bytes, unpacked_max: int) -> bytes | bytearray:
    try:
        return decompress(codec, data, unpacked_max)
    except TooLarge:
        raise
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"The records cannot be decompressed: {error}") from None


def explain_refused_records(
    data: batch.Bytes, count: int, bounds: Bounds, found: Survey, survey: Surveyor
) -> KafkaError:
    """Why a batch is refused: because its records cannot be read, or because of each record that breaks a rule."""
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    while found.verdict in (columns.NO_KEY, columns.TIME):
        if found.verdict == columns.TIME:
            code = ErrorCode.INVALID_TIMESTAMP
            message = f"Timestamp {found.timestamp} is not within {bounds.earliest} to {bounds.latest}"
        else:
            message = "A compacted topic accepts no record without a key"
        errors.append((found.record, message))
        if len(errors) == RECORD_ERRORS_MAX:
            break
        found = survey(data, count, bounds, found)
    else:
        if found.verdict != columns.SOUND:
            return KafkaError(ErrorCode.INVALID_RECORD, explain_unreadable(found, count))
    more = " or more" if len(errors) == RECORD_ERRORS_MAX else ""
    summary = f"{len(errors)}{more} of {count} records are refused; the first is record {errors[0][0]}: {errors[0][1]}"
    return RefusedRecords(code, summary, errors)


def explain_unreadable(found: Survey, count: int) -> str:
    if found.verdict == columns.MISSING:
        return f"The batch announces {count} records and has {found.record}"
    if found.verdict == columns.STRUCTURE:
        return f"Record {found.record} of the batch cannot be read"
    if found.verdict == columns.OFFSET:
        return f"The offset delta of record {found.record} is not its position in the batch"
    return f"There are bytes after record {count - 1}, the last one that the batch announces"


def make_too_large_error(header: BatchHeader, unpacked_max: int) -> KafkaError:
    message = f"{header.size} bytes of {NAMES[header.codec]} decompress to more than {unpacked_max}"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
