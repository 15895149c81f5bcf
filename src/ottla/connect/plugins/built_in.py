"""The plug-ins that come with Ottla."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ottla import __version__
from ottla.connect.converters.choice import CONVERTERS, HEADER_CONVERTERS
from ottla.connect.plugins.registry import HasSettings, Plugin, PluginType, load_from
from ottla.connect.settings.checks import one_of
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.connect.transforms.kinds import PREDICATES, TRANSFORMATIONS

_FILES: Final = "ottla.connect.connectors.files"
_S3: Final = "ottla.connect.connectors.s3"
_JDBC: Final = "ottla.connect.connectors.jdbc"
_HTTP: Final = "ottla.connect.connectors.http"
_JMS: Final = "ottla.connect.connectors.jms"
_MIRROR: Final = "ottla.connect.connectors.mirror"
_MIRROR_NAMES: Final = "org.apache.kafka.connect.mirror"

_CONNECTORS: Final = (
    (
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        PluginType.SOURCE,
        f"{_FILES}.file_source:FileStreamSource",
    ),
    ("org.apache.kafka.connect.file.FileStreamSinkConnector", PluginType.SINK, f"{_FILES}.file_sink:FileStreamSink"),
    ("io.confluent.connect.jdbc.JdbcSourceConnector", PluginType.SOURCE, f"{_JDBC}.source:JdbcSource"),
    ("io.confluent.connect.jdbc.JdbcSinkConnector", PluginType.SINK, f"{_JDBC}.sink:JdbcSink"),
    ("ottla.DirectorySource", PluginType.SOURCE, f"{_FILES}.directory_source:DirectorySource"),
    ("ottla.DirectorySink", PluginType.SINK, f"{_FILES}.directory_sink:DirectorySink"),
    (
        "io.debezium.connector.postgresql.PostgresConnector",
        PluginType.SOURCE,
        "ottla.connect.connectors.postgresql.source:PostgresConnector",
    ),
    ("io.confluent.connect.s3.S3SinkConnector", PluginType.SINK, f"{_S3}.s3_sink:S3Sink"),
    ("io.confluent.connect.s3.source.S3SourceConnector", PluginType.SOURCE, f"{_S3}.s3_source:S3Source"),
    (
        "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
        PluginType.SINK,
        "ottla.connect.connectors.search.search_sink:ElasticsearchSink",
    ),
    (
        "io.confluent.kafka.connect.datagen.DatagenConnector",
        PluginType.SOURCE,
        "ottla.connect.connectors.datagen.datagen_source:DatagenSource",
    ),
    ("ottla.DeltaLakeSink", PluginType.SINK, "ottla.connect.connectors.delta.delta_sink:DeltaLakeSink"),
    ("ottla.SparkSource", PluginType.SOURCE, "ottla.connect.connectors.spark.spark_source:SparkSource"),
    ("ottla.SparkSink", PluginType.SINK, "ottla.connect.connectors.spark.spark_sink:SparkSink"),
    ("io.confluent.connect.http.HttpSourceConnector", PluginType.SOURCE, f"{_HTTP}.http_source:HttpSource"),
    ("io.confluent.connect.http.HttpSinkConnector", PluginType.SINK, f"{_HTTP}.http_sink:HttpSink"),
    ("io.confluent.connect.jms.JmsSourceConnector", PluginType.SOURCE, f"{_JMS}.jms_source:JmsSource"),
    ("io.confluent.connect.activemq.ActiveMQSourceConnector", PluginType.SOURCE, f"{_JMS}.jms_source:ActiveMQSource"),
    ("io.confluent.connect.jms.JmsSinkConnector", PluginType.SINK, f"{_JMS}.jms_sink:JmsSink"),
    ("io.confluent.connect.jms.ActiveMqSinkConnector", PluginType.SINK, f"{_JMS}.jms_sink:ActiveMQSink"),
    (f"{_MIRROR_NAMES}.MirrorSourceConnector", PluginType.SOURCE, f"{_MIRROR}.mirror_source:MirrorSource"),
    (f"{_MIRROR_NAMES}.MirrorCheckpointConnector", PluginType.SOURCE, f"{_MIRROR}.mirror_checkpoint:MirrorCheckpoint"),
    (f"{_MIRROR_NAMES}.MirrorHeartbeatConnector", PluginType.SOURCE, f"{_MIRROR}.mirror_heartbeat:MirrorHeartbeat"),
)
"""The class name that users write, the type, and the home of our class."""


_TYPE: Final = Setting(
    "converter.type",
    Kind.STRING,
    REQUIRED,
    "What is converted; the worker sets it.",
    Importance.LOW,
    one_of("key", "value", "header"),
)


@dataclass(frozen=True)
class _TypedConverter:
    """A converter whose settings tell whether it is for keys, values or headers, as Kafka's do."""

    settings: Settings


def list_built_in() -> Iterator[Plugin]:
    for class_name, type_, home in _CONNECTORS:
        yield Plugin(class_name, type_, __version__, load_from(home))
    for transformation in TRANSFORMATIONS:
        yield _make_plugin(transformation.class_name, PluginType.TRANSFORMATION, transformation)
    for predicate in PREDICATES:
        yield _make_plugin(predicate.class_name, PluginType.PREDICATE, predicate)
    for kind in CONVERTERS:
        typed = _TypedConverter(Settings((_TYPE, *kind.settings.settings), kind.settings.refuse))
        for type_ in (PluginType.CONVERTER, PluginType.HEADER_CONVERTER):
            for class_name in kind.class_names:
                yield _make_plugin(class_name, type_, typed, kind.short_names)
    for kind in HEADER_CONVERTERS:
        for class_name in kind.class_names:
            yield _make_plugin(class_name, PluginType.HEADER_CONVERTER, kind, kind.short_names)


def _make_plugin(class_name: str, type_: PluginType, found: HasSettings, names: tuple[str, ...] = ()) -> Plugin:
    return Plugin(class_name, type_, __version__, lambda: found, names)
