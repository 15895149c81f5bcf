"""The settings that sinks of files share, wherever the files are: Confluent's names."""

from typing import Any, Final

from ottla.connect.connectors.files.formats import FORMATS
from ottla.connect.connectors.files.partitioners import PARTITIONERS, PATH_FORMAT
from ottla.connect.settings.checks import at_least, one_of
from ottla.connect.settings.definition import Importance, Kind, Setting

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000

_LOW, _HIGH = Importance.LOW, Importance.HIGH


def _setting(
    name: str, kind: Kind, default: Any, doc: str, importance: Importance = _LOW, check: Any = None
) -> Setting:
    return Setting(name, kind, default, doc, importance, check)


STORAGE_SETTINGS: Final = (
    _setting("format", Kind.STRING, "json", "json, csv, parquet, avro or text.", _HIGH, one_of(*FORMATS)),
    _setting("flush.size", Kind.INT, 10_000, "How many records a file has at most.", _HIGH, at_least(1)),
    _setting(
        "rotate.interval.ms",
        Kind.LONG,
        -1,
        "How much time, by the records' timestamps, the records of a file span at most; -1 for no limit.",
    ),
    _setting(
        "rotate.schedule.interval.ms",
        Kind.LONG,
        MINUTE_MS,
        "How old the first record of a file may become before the file is written; -1 to wait for flush.size.",
    ),
    _setting("topics.dir", Kind.STRING, "topics", "The directory above those of the topics."),
    _setting("parquet.codec", Kind.STRING, "snappy", "none, snappy, gzip, lz4 or zstd.", _LOW),
    _setting(
        "partitioner.class",
        Kind.STRING,
        "default",
        "How records are given to directories: default, field or time.",
        Importance.MEDIUM,
        one_of(*PARTITIONERS),
    ),
    _setting("partition.field.name", Kind.LIST, (), "The fields that name directories, for `field`."),
    _setting(
        "partition.duration.ms", Kind.LONG, HOUR_MS, "How much time a directory spans, for `time`.", check=at_least(1)
    ),
    _setting("path.format", Kind.STRING, PATH_FORMAT, "The pattern of directories, for `time`."),
    _setting("timezone", Kind.STRING, "UTC", "The time zone of directories, for `time`."),
    _setting(
        "timestamp.field", Kind.STRING, "", "The field that has the time, for `time`; the record's timestamp if empty."
    ),
)
