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

from dataclasses import dataclass

from ottla.config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch, columns
from ottla.records.batch import CODEC_MASK, HEADER_SIZE, BatchHeader
from ottla.records.columns import Bounds, Survey, Surveyor
from ottla.records.compression import GZIP, LZ4, NAMES, NONE, SNAPPY, ZSTD, CorruptBatch, TooLarge, compress, decompress

RECORD_ERRORS_MAX = 1_000
"""An answer does not name more records than this; the batch is refused as a whole in any case."""

UNPACKED_BYTES_MIN = 16 << 20
UNPACKED_RATIO = 20

CODECS = {"producer": None, "uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""compression.type -> what batches are packed with, None if with whatever they came."""


class RefusedRecords(KafkaError):
    """A batch with records that this topic does not take; which and why, by their place in the batch."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


@dataclass(frozen=True, slots=True)
class Rules:
    """What a topic's settings ask of the batches that come in."""

    keys_required: bool
    append_time: bool
    """The broker's own time stands for that of all records: theirs does not matter."""
    before_max_ms: int
    after_max_ms: int
    codec: int | None
    """What batches are packed with; None: with whatever they came."""
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

    def packs_anew(self, header: BatchHeader) -> bool:
        return self.codec is not None and self.codec != header.attributes & CODEC_MASK

    def take_as_it_is(self, records: memoryview, header: BatchHeader, now_ms: int) -> bool:
        """Whether a batch that is not packed has one record, and one of which nothing need be asked any more."""
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
class Checked:
    """A batch that may be appended, and its header."""

    records: memoryview
    header: BatchHeader


def validated(
    records: memoryview, header: BatchHeader, rules: Rules, now_ms: int, survey: Surveyor, unpacked_max: int
) -> Checked:
    """The batch as it is to be stored; `records` may be changed in place.

    KafkaError if it is refused, TooLarge if it unfolds to more than `unpacked_max`.
    """
    codec = header.attributes & CODEC_MASK
    data: batch.Bytes = records[HEADER_SIZE:]
    if codec != NONE:
        data = unpacked(codec, data, unpacked_max)
    bounds = rules.bounds(header.base_timestamp, now_ms)
    found = survey(data, header.record_count, bounds, columns.BEGIN)
    if found.verdict != columns.SOUND:
        raise refusal(data, header.record_count, bounds, found, survey)
    if rules.codec is not None and rules.codec != codec:
        packed = batch.repack(header, rules.codec, compress(rules.codec, data, rules.level), found.max_timestamp)
        return Checked(memoryview(packed), batch.read_header(packed))
    if found.max_timestamp != header.max_timestamp and not rules.append_time:
        header = batch.set_max_timestamp(records, found.max_timestamp)
    return Checked(records, header)


def unpacked(codec: int, data: batch.Bytes, unpacked_max: int) -> bytes | bytearray:
    try:
        return decompress(codec, data, unpacked_max)
    except TooLarge:
        raise
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"The records cannot be unpacked: {error}") from None


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
