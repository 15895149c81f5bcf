"""Topic settings: all of Kafka 4.3, each with the broker setting that is its default."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from ottla.config.settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    ConfigError,
    Setting,
    Settings,
    Synonym,
    at_least,
    between,
    check_throttled_replicas,
    each_of,
    one_of,
    suggest_name,
)

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
LONG_MAX = (1 << 63) - 1
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


def _from(*names: str) -> tuple[Synonym, ...]:
    return tuple(Synonym(name) for name in names)


class TopicConfig(Settings):
    """The settings of one topic: its own overrides, and defaults from the broker."""

    cleanup_policy = Setting(
        LIST,
        ("delete",),
        each_of("compact", "delete"),
        synonyms=_from("log.cleanup.policy"),
        doc="How old records are removed: delete removes them by age and size, compact keeps the newest of each key.",
    )
    compression_gzip_level = Setting(
        INT,
        -1,
        between(1, 9, otherwise=-1),
        synonyms=_from("compression.gzip.level"),
        doc="gzip level if the broker compresses. -1 is the default of the codec.",
    )
    compression_lz4_level = Setting(
        INT,
        9,
        between(1, 17),
        synonyms=_from("compression.lz4.level"),
        doc="lz4 level if the broker compresses.",
    )
    compression_type = Setting(
        STRING,
        "producer",
        one_of(*COMPRESSION_TYPES),
        synonyms=_from("compression.type"),
        doc="Codec of stored batches. producer keeps the codec that the producer used.",
    )
    compression_zstd_level = Setting(
        INT,
        3,
        between(-131072, 22),
        synonyms=_from("compression.zstd.level"),
        doc="zstd level if the broker compresses.",
    )
    delete_retention_ms = Setting(
        LONG,
        86_400_000,
        at_least(0),
        synonyms=_from("log.cleaner.delete.retention.ms"),
        doc="How long a compacted topic keeps tombstones, so that slow consumers see the deletion.",
    )
    file_delete_delay_ms = Setting(
        LONG,
        60_000,
        at_least(0),
        synonyms=_from("log.segment.delete.delay.ms"),
        doc="How long the files of a deleted segment stay on disk.",
    )
    flush_messages = Setting(
        LONG,
        LONG_MAX,
        at_least(1),
        synonyms=_from("log.flush.interval.messages"),
        doc="Number of records after which the log is fsynced. With 1 every acknowledgement waits for the disk.",
    )
    flush_ms = Setting(
        LONG,
        LONG_MAX,
        at_least(0),
        synonyms=_from("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="Age of the oldest unflushed record at which the log is fsynced.",
    )
    follower_replication_throttled_replicas = Setting(
        LIST,
        (),
        check_throttled_replicas,
        doc="Replicas that are throttled as followers: * or <partition>:<broker>,...",
    )
    index_interval_bytes = Setting(
        INT,
        4096,
        at_least(0),
        synonyms=_from("log.index.interval.bytes"),
        doc="Bytes of log between two entries of the offset index.",
    )
    internal_segment_bytes = Setting(
        INT,
        None,
        doc="Segment size below the minimum of segment.bytes. Only for tests of Apache Kafka.",
    )
    leader_replication_throttled_replicas = Setting(
        LIST,
        (),
        check_throttled_replicas,
        doc="Replicas that are throttled as leaders: * or <partition>:<broker>,...",
    )
    local_retention_bytes = Setting(
        LONG,
        -2,
        at_least(-2),
        synonyms=_from("log.local.retention.bytes"),
        doc="No effect: there is no tiered storage.",
    )
    local_retention_ms = Setting(
        LONG,
        -2,
        at_least(-2),
        synonyms=_from("log.local.retention.ms"),
        doc="No effect: there is no tiered storage.",
    )
    max_compaction_lag_ms = Setting(
        LONG,
        LONG_MAX,
        at_least(1),
        synonyms=_from("log.cleaner.max.compaction.lag.ms"),
        doc="Age at which a record is compacted at the latest.",
    )
    max_message_bytes = Setting(
        INT,
        1_048_588,
        at_least(0),
        synonyms=_from("message.max.bytes"),
        doc="Largest record batch that is accepted, in its compressed size.",
    )
    message_timestamp_after_max_ms = Setting(
        LONG,
        _HOUR_MS,
        at_least(0),
        synonyms=_from("log.message.timestamp.after.max.ms"),
        doc="How far a record's CreateTime may be ahead of the broker's clock.",
    )
    message_timestamp_before_max_ms = Setting(
        LONG,
        LONG_MAX,
        at_least(0),
        synonyms=_from("log.message.timestamp.before.max.ms"),
        doc="How far a record's CreateTime may be behind the broker's clock.",
    )
    message_timestamp_type = Setting(
        STRING,
        "CreateTime",
        one_of(*TIMESTAMP_TYPES),
        synonyms=_from("log.message.timestamp.type"),
        doc="The timestamp of records: CreateTime is set by the producer, LogAppendTime by the broker.",
    )
    min_cleanable_dirty_ratio = Setting(
        DOUBLE,
        0.5,
        between(0, 1),
        synonyms=_from("log.cleaner.min.cleanable.ratio"),
        doc="Share of bytes not yet compacted above which a log is compacted.",
    )
    min_compaction_lag_ms = Setting(
        LONG,
        0,
        at_least(0),
        synonyms=_from("log.cleaner.min.compaction.lag.ms"),
        doc="Age below which a record is not compacted.",
    )
    min_insync_replicas = Setting(
        INT,
        1,
        at_least(1),
        synonyms=_from("min.insync.replicas"),
        doc="Replicas that must be in sync before a write with acks=all is accepted.",
    )
    preallocate = Setting(
        BOOLEAN,
        False,
        synonyms=_from("log.preallocate"),
        doc="Reserve the disk space of a segment when it is created.",
    )
    remote_log_copy_disable = Setting(BOOLEAN, False, doc="No effect: there is no tiered storage.")
    remote_log_delete_on_disable = Setting(BOOLEAN, False, doc="No effect: there is no tiered storage.")
    remote_storage_enable = Setting(BOOLEAN, False, doc="Tiered storage, which is not there: true is refused.")
    retention_bytes = Setting(
        LONG,
        -1,
        synonyms=_from("log.retention.bytes"),
        doc="Size of a partition above which old segments are deleted; -1: never.",
    )
    retention_ms = Setting(
        LONG,
        168 * _HOUR_MS,
        at_least(-1),
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", _MINUTE_MS),
            Synonym("log.retention.hours", _HOUR_MS),
        ),
        doc="Age above which segments are deleted; -1: never.",
    )
    segment_bytes = Setting(
        INT,
        1 << 30,
        at_least(1 << 20),
        synonyms=_from("log.segment.bytes"),
        doc="Size at which a segment is rolled.",
    )
    segment_index_bytes = Setting(
        INT,
        10 << 20,
        at_least(4),
        synonyms=_from("log.index.size.max.bytes"),
        doc="Largest size of the index of a segment. A full index rolls the segment.",
    )
    segment_jitter_ms = Setting(
        LONG,
        0,
        at_least(0),
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
        doc="Random time up to this is subtracted from segment.ms, so that partitions do not all roll at once.",
    )
    segment_ms = Setting(
        LONG,
        168 * _HOUR_MS,
        at_least(1),
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
        doc="Age at which a segment is rolled even if it is not full.",
    )
    unclean_leader_election_enable = Setting(
        BOOLEAN,
        False,
        synonyms=_from("unclean.leader.election.enable"),
        doc="Let a replica that is not in sync become the leader if no other can. Records may be lost.",
    )

    @classmethod
    def of(cls, overrides: Mapping[str, str], broker: "BrokerConfig") -> "TopicConfig":
        """The values in force. All topics without overrides share one object.

        Each override is checked alone. `check_together` is only for changes of settings: broker settings may change
        after a topic was configured, and the topic must keep working.
        """
        if not overrides:
            return broker.topic_defaults
        return broker.topic_defaults._copy_with(cls.read(overrides), overrides)

    def check_together(self) -> None:
        """Checks that involve more than one setting."""
        shortest, longest = self.min_compaction_lag_ms, self.max_compaction_lag_ms
        if shortest > longest:
            raise ConfigError(f"min.compaction.lag.ms: {shortest} is above max.compaction.lag.ms ({longest})")
        if self.remote_storage_enable:
            raise ConfigError("remote.storage.enable: there is no tiered storage in this cluster")

    @classmethod
    def defaults(cls, broker: Settings) -> Self:
        """The defaults of every topic, from the settings of the broker."""
        values: dict[str, Any] = {}
        for name, setting in cls.table.items():
            values[name] = setting.default
            for synonym in setting.synonyms:
                value = broker.value(synonym.name)
                if value is not None:
                    values[name] = synonym.convert(value)
                    break
        return cls()._fill(values, {})

    @classmethod
    def read(cls, overrides: Mapping[str, str]) -> dict[str, Any]:
        """The values of overrides, each checked by itself."""
        values = {}
        for name, text in overrides.items():
            setting = cls.table.get(name)
            if setting is None:
                raise ConfigError(f"unknown topic setting {name!r}{suggest_name(name, cls.table)}")
            values[name] = setting.read(text)
        return values
