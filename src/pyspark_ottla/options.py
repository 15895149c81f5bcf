"""The options of reads and writes: those of Spark's Kafka connector and a few more, checked before anything runs.

Spark hands options over with their names in lower case; messages use the names as they are documented.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from ottla.client.settings import ClientSettings
from ottla.records.compression import NAMES as CODECS
from ottla.topic_partition import TopicPartition
from pyspark_ottla.boundaries import WORDS, Boundary, OptionError, parse_assignment, parse_numbers

KAFKA_PREFIX = "kafka."
ISOLATIONS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
BATCH_BYTES = 256 * 1024
"""Larger than a producer's default, because a task has all its rows at once."""

RECORD_BYTES_MAX = 1024 * 1024
TRANSACTION_MS = 300_000
GUARANTEES = ("exactly-once", "at-least-once")
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}

READ_OPTIONS = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    "columns",
    "keyFormat",
    "keySchema",
    "keyMessage",
    "keySubject",
    "valueFormat",
    "valueSchema",
    "valueMessage",
    "valueSubject",
    "expandValue",
    "badRecords",
    "deadLetterTopic",
    "schemaRegistry",
    "schemaRegistryUser",
    "schemaRegistryToken",
    "schemaRegistryTimeout",
)
WRITE_OPTIONS = ("topic", "guarantee", "includeHeaders", "ledgerTopic", "deterministic", "withoutLedger")
STOCK_ONLY = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "path",
    "checkpointLocation",
    "queryName",
    "outputMode",
)
"""Options of Spark's own connector and of Spark itself that have no meaning here. They are ignored."""

_NOT_FOR_READERS = {
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "offsets are committed as queries progress",
    "key.deserializer": "keys are binary columns; cast them, or use the option keyFormat",
    "value.deserializer": "values are binary columns; cast them, or use the option valueFormat",
    "interceptor.classes": "interceptors are Java's",
}
_NOT_FOR_WRITERS = {
    "key.serializer": "keys are string or binary columns",
    "value.serializer": "values are string or binary columns",
    "transactional.id": "the sink chooses it by its query",
    "interceptor.classes": "interceptors are Java's",
    "partitioner.class": "give a partition column",
}
_DURATION = re.compile(r"(\d+)\s*([a-z]+)")


class Selection(NamedTuple):
    """Which topics are read: by partition, by name or by pattern."""

    assigned: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""
    without: str = ""
    """The dead-letter topic, which the pattern must not match."""


class ReadOptions(NamedTuple):
    kafka: dict[str, str]
    selection: Selection
    starting: Boundary
    ending: Boundary
    latest_if_none: bool
    fail_on_data_loss: bool
    isolation: int
    group: str
    max_offsets: int | None
    min_offsets: int | None
    max_delay_s: float
    min_partitions: int | None
    max_records: int | None


class RecordShape(NamedTuple):
    """How records are batched and sent. Names and defaults are the Java client's, except for batch.size."""

    codec: int
    level: int | None
    batch_bytes: int
    record_bytes_max: int
    acks: int
    delivery_s: float


class WriteOptions(NamedTuple):
    kafka: dict[str, str]
    records: RecordShape
    topic: str | None
    exactly_once: bool
    ledger_topic: str | None
    """The ledger is an offset for partition 0 of this topic."""
    deterministic: bool
    """Whether a batch that runs again gives the same rows to the same tasks."""
    without_ledger: bool
    """Continue although the ledger is gone: the user has checked that the batch is not in the topic."""
    timeout_ms: int
    """transaction.timeout.ms: a batch must be written within this time."""


class Given:
    """Looks options up by their documented names; Spark lowers their case."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): str(options[name]) for name in options}
        known_lower = {name.lower() for name in (*known, *STOCK_ONLY)}
        for name in sorted(self._values):
            if name not in known_lower and not name.startswith(KAFKA_PREFIX):
                raise OptionError(f"{name}: there is no such option; there are {', '.join(known)} and kafka.*")

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._values.get(name.lower(), default)

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or not 0 < int(text) < 1 << 63:
            raise OptionError(f"{name}: {text!r} is not a number above 0")
        return int(text)

    def truth(self, name: str, default: bool) -> bool:
        text = (self.text(name) or str(default)).strip().lower()
        if text not in ("true", "false"):
            raise OptionError(f"{name}: {text!r} is neither true nor false")
        return text == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = (self.text(name) or default).strip().lower()
        if text not in choices:
            raise OptionError(f"{name}: {text!r} is none of {', '.join(choices)}")
        return text

    def seconds(self, name: str, default: str) -> float:
        text = (self.text(name) or default).strip().lower()
        found = _DURATION.fullmatch(text)
        if found is None or found[2] not in SECONDS:
            raise OptionError(f"{name}: {text!r} is not a duration like 15m, 30s or 500ms")
        return int(found[1]) * SECONDS[found[2]]

    def kafka(self, refused: Mapping[str, str]) -> dict[str, str]:
        """The kafka.* options as client settings, checked as far as is possible without a broker."""
        settings = {
            name.removeprefix(KAFKA_PREFIX): value
            for name, value in self._values.items()
            if name.startswith(KAFKA_PREFIX)
        }
        for name, instead in refused.items():
            if name in settings:
                raise OptionError(f"kafka.{name}: it cannot be set; {instead}")
        if not settings.get("bootstrap.servers"):
            raise OptionError("kafka.bootstrap.servers: it must be set, to host:port of one broker or more")
        try:
            ClientSettings.of(settings)
        except ValueError as error:
            raise OptionError(f"kafka.{error}") from None
        return settings


def parse_read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """OptionError for the first thing that is wrong."""
    given = Given(options, READ_OPTIONS)
    kafka = given.kafka(_NOT_FOR_READERS)
    isolation = kafka.get("isolation.level", "read_uncommitted").lower()
    if isolation not in ISOLATIONS:
        raise OptionError(f"kafka.isolation.level: {isolation!r} is none of {', '.join(ISOLATIONS)}")
    max_offsets, min_offsets = given.number("maxOffsetsPerTrigger"), given.number("minOffsetsPerTrigger")
    if max_offsets is not None and min_offsets is not None and max_offsets < min_offsets:
        raise OptionError(f"minOffsetsPerTrigger: {min_offsets} is above maxOffsetsPerTrigger, {max_offsets}")
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return ReadOptions(
        kafka,
        parse_selection(given),
        _parse_starting(given, streaming=streaming, grouped="group.id" in kafka),
        _parse_ending(given, streaming=streaming),
        strategy == "latest",
        given.truth("failOnDataLoss", True),
        ISOLATIONS[isolation],
        kafka.get("group.id", ""),
        max_offsets,
        min_offsets,
        given.seconds("maxTriggerDelay", "15m"),
        given.number("minPartitions"),
        given.number("maxRecordsPerPartition"),
    )


def parse_kafka_and_selection(options: Mapping[str, str]) -> tuple[dict[str, str], Selection]:
    """The options that are needed to sample topics."""
    given = Given(options, READ_OPTIONS)
    return given.kafka(_NOT_FOR_READERS), parse_selection(given)


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """OptionError for the first thing that is wrong."""
    given = Given(options, WRITE_OPTIONS)
    topic = given.text("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic: it names no topic")
    kafka = given.kafka(_NOT_FOR_WRITERS)
    return WriteOptions(
        kafka,
        parse_record_shape(kafka),
        topic.strip() if topic is not None else None,
        given.choice("guarantee", GUARANTEES, GUARANTEES[0]) == GUARANTEES[0],
        (given.text("ledgerTopic") or topic or "").strip() or None,
        given.truth("deterministic", False),
        given.truth("withoutLedger", False),
        _parse_size(kafka, "transaction.timeout.ms", TRANSACTION_MS),
    )


def parse_record_shape(kafka: Mapping[str, str]) -> RecordShape:
    """From the settings of a producer, by Kafka's names. OptionError for the first thing that is wrong."""
    codec = kafka.get("compression.type", kafka.get("compression.codec", "none")).strip().lower()
    if codec not in CODECS:
        raise OptionError(f"kafka.compression.type: {codec!r} is none of {', '.join(CODECS)}")
    acks = kafka.get("acks", "all").strip().lower()
    if acks not in ACKS:
        raise OptionError(f"kafka.acks: {acks!r} is none of {', '.join(ACKS)}")
    level = kafka.get(f"compression.{codec}.level")
    return RecordShape(
        CODECS.index(codec),
        None if level is None else _parse_size(kafka, f"compression.{codec}.level", 0),
        _parse_size(kafka, "batch.size", BATCH_BYTES),
        _parse_size(kafka, "max.request.size", RECORD_BYTES_MAX),
        ACKS[acks],
        _parse_size(kafka, "delivery.timeout.ms", 120_000) / 1000,
    )


def _parse_size(kafka: Mapping[str, str], name: str, default: int) -> int:
    text = kafka.get(name, str(default)).strip()
    if not text.isdecimal() or int(text) >= 1 << 31:
        raise OptionError(f"kafka.{name}: {text!r} is not a number")
    return int(text)


def parse_selection(given: Given) -> Selection:
    """Raises OptionError unless exactly one of assign, subscribe and subscribePattern is given."""
    ways = [name for name in ("assign", "subscribe", "subscribePattern") if given.has(name)]
    if len(ways) != 1:
        said = "none of them is" if not ways else f"{' and '.join(ways)} are"
        raise OptionError(f"exactly one of assign, subscribe and subscribePattern must be given, but {said}")
    text = given.text(ways[0]) or ""
    if ways[0] == "assign":
        return Selection(assigned=parse_assignment("assign", text))
    if ways[0] == "subscribePattern":
        if not text.strip():
            raise OptionError("subscribePattern: the pattern is empty")
        return Selection(pattern=text.strip(), without=(given.text("deadLetterTopic") or "").strip())
    topics = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
    if not topics:
        raise OptionError("subscribe: no topic is named; give one, or several with commas between them")
    return Selection(topics=topics)


def _parse_starting(given: Given, *, streaming: bool, grouped: bool) -> Boundary:
    if (by_time := _parse_time(given, "startingTimestamp", "startingOffsetsByTimestamp")) is not None:
        return by_time
    option = "startingOffsets"
    text = (given.text(option) or ("latest" if streaming else "earliest")).strip()
    word = text.lower()
    if word == "group":
        if not grouped:
            raise OptionError(f"{option}: 'group' needs kafka.group.id, whose committed offsets are meant")
        return Boundary(option, of_group=True)
    if word in WORDS:
        if not streaming and word == "latest":
            raise OptionError(f"{option}: 'latest' would read nothing in a batch; it can be earliest or JSON")
        return Boundary(option, WORDS[word])
    each = parse_numbers(option, text, '{"orders": {"0": 23, "1": -2}}', EARLIEST)
    if not streaming and LATEST in each.values():
        raise OptionError(f"{option}: -1 (latest) would read nothing in a batch")
    return Boundary(option, each=each)


def _parse_ending(given: Given, *, streaming: bool) -> Boundary:
    if streaming:
        for option in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            if given.has(option):
                raise OptionError(f"{option}: a streaming query has no end")
    if (by_time := _parse_time(given, "endingTimestamp", "endingOffsetsByTimestamp")) is not None:
        return by_time
    option = "endingOffsets"
    text = (given.text(option) or "latest").strip()
    if text.lower() == "latest":
        return Boundary(option, LATEST)
    if text.lower() == "earliest":
        raise OptionError(f"{option}: 'earliest' would read nothing; it can be latest or JSON")
    each = parse_numbers(option, text, '{"orders": {"0": 50, "1": -1}}', EARLIEST)
    if EARLIEST in each.values():
        raise OptionError(f"{option}: -2 (earliest) would read nothing")
    return Boundary(option, each=each)


def _parse_time(given: Given, everywhere: str, each: str) -> Boundary | None:
    """As in Spark's own connector: one timestamp for all partitions wins over one for each, and both over offsets."""
    if (text := given.text(everywhere)) is not None:
        if not text.strip().isdecimal() or int(text) >= 1 << 63:
            raise OptionError(f"{everywhere}: {text!r} is not a time in milliseconds")
        return Boundary(everywhere, int(text), by_time=True)
    if (text := given.text(each)) is not None:
        numbers = parse_numbers(each, text, '{"orders": {"0": 1767225600000}}', 0)
        return Boundary(each, each=numbers, by_time=True)
    return None
