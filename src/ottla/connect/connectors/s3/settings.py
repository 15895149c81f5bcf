"""The settings of Confluent's S3 sink and source, and the formats and partitioners that they name by Java classes."""

import gzip
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ottla.connect.connectors.files.formats import FileFormat, make_format
from ottla.connect.connectors.files.partitioners import PATH_FORMAT, Partitioner, make_partitioner
from ottla.connect.connectors.files.storage_settings import HOUR_MS
from ottla.connect.connectors.s3.bucket import BucketAddress
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import BadConfig, ConnectError
from ottla.connect.settings.checks import at_least, between, is_regex, one_of
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings

_S3: Final = "io.confluent.connect.s3"
_STORAGE: Final = "io.confluent.connect.storage.partitioner"
FORMATS: Final = {
    f"{_S3}.format.json.JsonFormat": "json",
    f"{_S3}.format.avro.AvroFormat": "avro",
    f"{_S3}.format.parquet.ParquetFormat": "parquet",
    f"{_S3}.format.bytearray.ByteArrayFormat": "bytes",
}
DAILY_FORMAT: Final = "'year'=YYYY/'month'=MM/'day'=dd"
PARTITIONERS: Final[Mapping[str, Mapping[str, Any]]] = {
    f"{_STORAGE}.DefaultPartitioner": {"partitioner.class": "default"},
    f"{_STORAGE}.FieldPartitioner": {"partitioner.class": "field"},
    f"{_STORAGE}.TimeBasedPartitioner": {"partitioner.class": "time"},
    f"{_STORAGE}.HourlyPartitioner": {
        "partitioner.class": "time",
        "path.format": PATH_FORMAT,
        "partition.duration.ms": HOUR_MS,
    },
    f"{_STORAGE}.DailyPartitioner": {
        "partitioner.class": "time",
        "path.format": DAILY_FORMAT,
        "partition.duration.ms": 24 * HOUR_MS,
    },
}
PART_BYTES_MIN: Final = 5 * 1024 * 1024
"""S3 wants all parts but the last to be at least so large."""
CANNED_ACLS: Final = (
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "log-delivery-write",
    "bucket-owner-read",
    "bucket-owner-full-control",
    "aws-exec-read",
)

_LOW, _HIGH = Importance.LOW, Importance.HIGH


def _one_class_of(classes: Mapping[str, Any]) -> Any:
    """Checks the name of a class; its last part is enough."""
    return one_of(*classes, *(name.rpartition(".")[2] for name in classes))


def _find_class(classes: Mapping[str, Any], given: str) -> Any:
    return next(found for name, found in classes.items() if given in (name, name.rpartition(".")[2]))


def _setting(
    name: str, kind: Kind, default: Any, doc: str, check: Any = None, importance: Importance = _LOW
) -> Setting:
    return Setting(name, kind, default, doc, importance, check)


BUCKET_SETTINGS: Final = (
    _setting("s3.bucket.name", Kind.STRING, REQUIRED, "The bucket.", importance=_HIGH),
    _setting("s3.region", Kind.STRING, "us-west-2", "The region of the bucket.", importance=Importance.MEDIUM),
    _setting("store.url", Kind.STRING, None, "The address of another store that speaks S3's protocol.", None, _HIGH),
    _setting("aws.access.key.id", Kind.STRING, None, "The access key; by default what AWS's tools find.", None, _HIGH),
    _setting("aws.secret.access.key", Kind.PASSWORD, None, "The secret of the access key.", None, _HIGH),
    _setting("s3.path.style.access.enabled", Kind.BOOLEAN, True, "Whether the bucket is in the path of addresses."),
    _setting("s3.proxy.url", Kind.STRING, "", "The proxy to go through."),
    _setting("s3.part.retries", Kind.INT, 3, "How often a request is repeated at once.", at_least(0)),
)

_SINK_SETTINGS: Final = (
    *BUCKET_SETTINGS,
    _setting("storage.class", Kind.STRING, f"{_S3}.storage.S3Storage", "The kind of the store.", None, _HIGH),
    _setting(
        "format.class",
        Kind.STRING,
        f"{_S3}.format.avro.AvroFormat",
        "JsonFormat, AvroFormat, ParquetFormat or ByteArrayFormat.",
        _one_class_of(FORMATS),
        _HIGH,
    ),
    _setting("flush.size", Kind.INT, REQUIRED, "How many records an object has at most.", at_least(1), _HIGH),
    _setting(
        "rotate.interval.ms", Kind.LONG, -1, "How much time the records of an object span at most; -1: any.", None
    ),
    _setting(
        "rotate.schedule.interval.ms",
        Kind.LONG,
        -1,
        "How old the first record of an object may become before the object is written; -1 to wait for flush.size.",
    ),
    _setting("topics.dir", Kind.STRING, "topics", "The prefix above those of the topics.", None, _HIGH),
    _setting("file.delim", Kind.STRING, "+", "Stands between topic, partition and offset in the name of an object."),
    _setting("filename.offset.zero.pad.width", Kind.INT, 10, "Digits of the offset in names.", between(0, 20)),
    _setting("s3.part.size", Kind.INT, 26_214_400, "Bytes of a part of an upload.", at_least(PART_BYTES_MIN), _HIGH),
    _setting(
        "s3.compression.type",
        Kind.STRING,
        "none",
        "none or gzip, for JSON and bytes.",
        one_of("none", "gzip"),
    ),
    _setting("s3.compression.level", Kind.INT, -1, "1 (fast) to 9 (small); -1 for 6.", between(-1, 9)),
    _setting(
        "parquet.codec",
        Kind.STRING,
        "snappy",
        "none, snappy, gzip, lz4 or zstd.",
        one_of("none", "snappy", "gzip", "lz4", "zstd"),
    ),
    _setting("avro.codec", Kind.STRING, "deflate", "How blocks of Avro are compressed.", one_of("deflate")),
    _setting("format.bytearray.extension", Kind.STRING, ".bin", "The end of names, for ByteArrayFormat."),
    _setting("format.bytearray.separator", Kind.STRING, "\n", "Follows each value, for ByteArrayFormat."),
    _setting(
        "behavior.on.null.values",
        Kind.STRING,
        "fail",
        "What becomes of records without a value: ignore or fail.",
        one_of("ignore", "fail"),
    ),
    _setting(
        "s3.ssea.name", Kind.STRING, "", "Encryption at rest: AES256 or aws:kms.", one_of("", "AES256", "aws:kms")
    ),
    _setting("s3.sse.kms.key.id", Kind.STRING, "", "The key of aws:kms."),
    _setting("s3.acl.canned", Kind.STRING, None, "The access control of objects.", one_of(*CANNED_ACLS)),
    _setting(
        "partitioner.class",
        Kind.STRING,
        f"{_STORAGE}.DefaultPartitioner",
        "How records are given to prefixes: Default-, Field-, TimeBased-, Hourly- or DailyPartitioner.",
        _one_class_of(PARTITIONERS),
        _HIGH,
    ),
    _setting("partition.field.name", Kind.LIST, (), "The fields that name prefixes, for FieldPartitioner."),
    _setting("partition.duration.ms", Kind.LONG, HOUR_MS, "How much time a prefix spans.", at_least(1)),
    _setting("path.format", Kind.STRING, PATH_FORMAT, "The pattern of prefixes, for TimeBasedPartitioner."),
    _setting("timezone", Kind.STRING, "UTC", "The time zone of prefixes."),
    _setting("locale", Kind.STRING, "", "Has no effect: prefixes have numbers only."),
    _setting(
        "timestamp.extractor",
        Kind.STRING,
        "Record",
        "What a record's time is: Record (its timestamp) or RecordField.",
        one_of("Record", "RecordField"),
    ),
    _setting("timestamp.field", Kind.STRING, "timestamp", "The field that has the time, for RecordField."),
)

_ONLY: Final[Mapping[str, Sequence[str]]] = {
    "store.kafka.keys": ("false",),
    "store.kafka.headers": ("false",),
    "s3.object.tagging": ("false",),
    "s3.wan.mode": ("false",),
    "schema.compatibility": ("NONE",),
    "directory.delim": ("/",),
    "s3.credentials.provider.class": ("com.amazonaws.auth.DefaultAWSCredentialsProviderChain",),
    "s3.sse.customer.key": (),
    "tombstone.encoded.partition": (),
}
"""Settings of Confluent's that are known, and the values that change nothing here."""

_PARTITIONING: Final = ("partition.field.name", "path.format", "timezone")
"""What a partitioner may find wrong; its message begins with the name."""


def _refuse(config: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    try:
        choose_partitioner(config)
    except BadConfig as error:
        name = next(each for each in _PARTITIONING if str(error).startswith(each))
        return {name: [str(error)]}
    return {}


SINK_SETTINGS: Final = Settings(_SINK_SETTINGS, _refuse, _ONLY)


def _are_topic_patterns(name: str, value: Sequence[str]) -> None:
    if not value:
        raise ValueError("At least one <topic>:<regular expression> is needed")
    for each in value:
        topic, _, pattern = each.partition(":")
        if not topic or not pattern:
            raise ValueError(f"{each!r} is not <topic>:<regular expression>")
        is_regex(name, pattern)


SOURCE_SETTINGS: Final = Settings(
    (
        *BUCKET_SETTINGS,
        _setting("mode", Kind.STRING, "GENERIC", "GENERIC: any objects, in one format.", one_of("GENERIC"), _HIGH),
        _setting("topics.dir", Kind.STRING, "topics", "The prefix below which objects are read.", None, _HIGH),
        _setting(
            "topic.regex.list",
            Kind.LIST,
            REQUIRED,
            "Which objects go to which topic: <topic>:<regular expression of keys>, the first that fits.",
            _are_topic_patterns,
            _HIGH,
        ),
        _setting("format.class", Kind.STRING, REQUIRED, "The format of the objects.", _one_class_of(FORMATS), _HIGH),
        _setting("format.bytearray.separator", Kind.STRING, "\n", "Ends each value, for ByteArrayFormat."),
        _setting("s3.poll.interval.ms", Kind.LONG, 60_000, "How often new objects are looked for.", at_least(0)),
    )
)


def list_topic_patterns(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Topics and the regular expressions of their objects' keys."""
    found = (each.partition(":") for each in config["topic.regex.list"])
    return [(topic, pattern) for topic, _, pattern in found]


def find_format_name(config: Mapping[str, Any]) -> str:
    """json, avro, parquet or bytes."""
    return str(_find_class(FORMATS, config["format.class"]))


def find_address(config: Mapping[str, Any]) -> BucketAddress:
    return BucketAddress(
        config["s3.bucket.name"],
        config["s3.region"],
        config["store.url"] or None,
        config["aws.access.key.id"] or None,
        config["aws.secret.access.key"] or None,
        config["s3.proxy.url"] or None,
        config["s3.path.style.access.enabled"],
        config["s3.part.retries"],
    )


def find_object_options(config: Mapping[str, Any]) -> dict[str, str]:
    """What boto3 wants to be told about new objects."""
    wanted = {
        "ServerSideEncryption": config["s3.ssea.name"],
        "SSEKMSKeyId": config["s3.sse.kms.key.id"],
        "ACL": config["s3.acl.canned"],
    }
    return {name: value for name, value in wanted.items() if value}


def choose_partitioner(config: Mapping[str, Any]) -> Partitioner:
    """BadConfig if the settings name what does not exist."""
    wanted = {**config, **_find_class(PARTITIONERS, config["partitioner.class"])}
    if wanted["timestamp.extractor"] == "Record":
        wanted["timestamp.field"] = ""
    return make_partitioner(wanted)


def choose_format(config: Mapping[str, Any]) -> FileFormat:
    name = find_format_name(config)
    made = _make_bytes(config) if name == "bytes" else make_format(name, config)
    if config["s3.compression.type"] == "none" or name not in ("json", "bytes"):
        return made
    level = 6 if config["s3.compression.level"] < 0 else config["s3.compression.level"]

    def write(schema: Schema, values: pa.Array) -> bytes:
        return gzip.compress(made.write(schema, values), level, mtime=0)

    return FileFormat(f"{made.extension}.gz", write)


def keeps_json(config: Mapping[str, Any]) -> bool:
    """Whether values without a schema can be written as they are: as JSON, if no field of them names a prefix."""
    partitioner = _find_class(PARTITIONERS, config["partitioner.class"])["partitioner.class"]
    asks_fields = partitioner == "field" or (partitioner == "time" and config["timestamp.extractor"] == "RecordField")
    return find_format_name(config) == "json" and not asks_fields


def _make_bytes(config: Mapping[str, Any]) -> FileFormat:
    separator = config["format.bytearray.separator"].encode()

    def write(schema: Schema, values: pa.Array) -> bytes:
        if schema.type is not Type.BYTES:
            raise ConnectError(f"ByteArrayFormat writes bytes (ByteArrayConverter), and these are {schema.type.value}")
        return b"".join(value + separator for value in values.to_pylist())

    return FileFormat(config["format.bytearray.extension"].lstrip("."), write)
