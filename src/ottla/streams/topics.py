"""Sources and sinks: how the records of a topic become columns, and columns records, as the user says or by default."""

from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import StructType

from ottla.streams.columns import check_names, parse_schema, to_item, user_columns
from ottla.streams.errors import TopologyError
from ottla.streams.formats import RecordFormat
from ottla.streams.graph import Node, Sink, Source
from ottla.streams.options import check_topic_name
from ottla.streams.relation import Relation, check_columns
from ottla.streams.topology import Topology, sources_of

Format = str | StructType | RecordFormat
"""What a user says about a key or a value: the name of a type such as "string" or "long"; fields in SQL syntax, or a
schema of Spark, for JSON; or a RecordFormat for Avro, Protobuf and schema registries."""

CANONICAL_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
}
START: Final = ("earliest", "latest")
_TOPIC_COLUMN: Final = "topic"
"""The column that a computed topic is in, until the sink."""


def resolve_format(label: str, what: str, given: object) -> RecordFormat:
    """The format with the type of what it decodes."""
    if isinstance(given, RecordFormat) and given.type is not None:
        return given
    if isinstance(given, str) and given.strip().lower() in CANONICAL_TYPES:
        kind = given.strip().lower()
        return RecordFormat(kind, type=CANONICAL_TYPES[kind])
    if isinstance(given, StructType):
        return RecordFormat("json", type=pa.struct(list(user_columns(given))))
    if isinstance(given, str):
        return RecordFormat("json", type=pa.struct(list(parse_schema(f"{label}: {what}", given))))
    raise TopologyError(f"{label}: {what}={given!r} is no format: use 'string', 'long', ..., or fields 'id long, ...'")


def make_source(
    label: str,
    topic: str,
    *,
    key: object,
    value: object,
    time: str | None,
    start: str,
    name: str | None = None,
    is_table: bool = False,
) -> Source:
    """A source with its columns: those of the key first."""
    key_format, value_format = resolve_format(label, "key", key), resolve_format(label, "value", value)
    keys, values = _fields(key_format, "key"), _fields(value_format, "value")
    names = [each.name for each in keys]
    for field in values:
        if field.name in names:
            raise TopologyError(
                f"{label}: the value has a field {field.name!r}, which is the name of the key's column; leave it out of"
                f" value="
            )
    columns = pa.schema([*keys, *values])
    check_names(label, columns.names)
    if time is not None:
        _check_time(label, columns, time)
    if start not in START:
        raise TopologyError(f"{label}: start={start!r}: an app can start at {' or '.join(map(repr, START))}")
    return Source(
        label,
        (),
        columns,
        tuple(names),
        is_table=is_table,
        topic=topic,
        key_format=key_format,
        value_format=value_format,
        time=time,
        start=start,
        name=name,
    )


def _fields(form: RecordFormat, name: str) -> list[pa.Field]:
    assert form.type is not None
    return list(form.type) if pa.types.is_struct(form.type) else [pa.field(name, form.type)]


def _check_time(label: str, columns: pa.Schema, time: str) -> None:
    if time not in columns.names:
        raise TopologyError(f"{label}: time={time!r}: there is no such column; there are {', '.join(columns.names)}")
    kind = columns.field(time).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_int64(kind)):
        raise TopologyError(f"{label}: time={time!r} is {kind}; it must be a timestamp, or a long with milliseconds")


def choose_key_format(label: str, node: Node, given: object) -> RecordFormat:
    """How a sink writes the key: as Kafka's serializers do if it is one simple column, otherwise as JSON."""
    fields = [node.columns.field(name) for name in node.key]
    if given is None:
        kinds = [kind for kind, each in CANONICAL_TYPES.items() if len(fields) == 1 and each == fields[0].type]
        return RecordFormat(kinds[0], type=fields[0].type) if kinds else RecordFormat("json", type=pa.struct(fields))
    chosen = resolve_format(label, "key", given)
    _check_fit(label, "key", chosen, fields)
    return chosen


def choose_value_format(label: str, node: Node, given: object, left_out: str | None = None) -> RecordFormat:
    """How a sink writes the value: the column `value` alone as it is, any other columns as JSON."""
    fields = [each for each in node.columns if each.name not in node.key and each.name != left_out]
    if given is None:
        if len(fields) == 1 and fields[0].name == "value":
            kinds = [kind for kind, each in CANONICAL_TYPES.items() if each == fields[0].type]
            if kinds:
                return RecordFormat(kinds[0], type=fields[0].type)
        return RecordFormat("json", type=pa.struct(fields))
    chosen = resolve_format(label, "value", given)
    _check_fit(label, "value", chosen, fields)
    return chosen


def make_sink(
    topology: Topology,
    relation: Relation,
    label: str,
    topic: object,
    *,
    key: object,
    value: object,
    allows_loop: bool,
) -> Sink:
    """A sink for the rows. `topic` is a name, or a Column with the name of each row's topic."""
    if isinstance(topic, str):
        check_topic_name(topic, label)
        node, column, left_out = relation.node, None, None
    elif isinstance(topic, Column):
        node, column, left_out = _add_topic_column(relation, label, topic)
    else:
        raise TopologyError(f"{label}: {topic!r} is neither the name of a topic nor a Column with names of topics")
    sink = Sink(
        label,
        (node,),
        node.columns,
        node.key,
        is_table=node.is_table,
        topic=topic if isinstance(topic, str) else None,
        topic_column=column,
        key_format=choose_key_format(label, node, key),
        value_format=choose_value_format(label, node, value, left_out),
    )
    if sink.topic is not None:
        _check_own_topic(topology, sink, sink.topic, allows_loop=allows_loop)
    return sink


def _add_topic_column(relation: Relation, label: str, topic: Column) -> tuple[Node, str, str | None]:
    """The rows with a column of topics, its name, and again its name if it is not a part of the value."""
    name = to_item(label, topic).plain_name
    left_out = None
    if name is None:
        name = left_out = _TOPIC_COLUMN
        if name in relation.columns:
            raise TopologyError(f"{label}: there is a column {name!r} already; rename it")
        relation = relation.add_columns(label, {name: topic})
    check_columns(label, relation.node, [name])
    if not pa.types.is_string(relation.node.columns.field(name).type):
        raise TopologyError(
            f"{label}: {name!r} is {relation.node.columns.field(name).type}; names of topics are strings"
        )
    return relation.node, name, left_out


def _check_own_topic(topology: Topology, sink: Sink, topic: str, *, allows_loop: bool) -> None:
    """A topic that the app reads as well must be written as it is read, and not by what it causes."""
    source = topology.source_of_topic(topic)
    if source is None:
        return
    if source in sources_of(sink) and not allows_loop:
        raise TopologyError(
            f"{sink.label}: the rows come from the topic {topic!r} itself and would go round for ever; write to "
            f"another topic, or say allows_loop=True if a filter ends the loop"
        )
    read = (source.key_format.kind, source.key_format.type, source.value_format.kind, source.value_format.type)
    if read != (sink.key_format.kind, sink.key_format.type, sink.value_format.kind, sink.value_format.type):
        raise TopologyError(
            f"{sink.label}: {source.label} reads the topic {topic!r} with another schema than these rows"
        )


def _check_fit(label: str, what: str, form: RecordFormat, fields: list[pa.Field]) -> None:
    """TopologyError unless the format takes exactly these columns."""
    assert form.type is not None
    found = ", ".join(f"{each.name} {each.type}" for each in fields) or "nothing"
    if not pa.types.is_struct(form.type):
        if len(fields) != 1 or fields[0].type != form.type:
            raise TopologyError(f"{label}: {what}={form.kind!r} takes one column of {form.type}; there is {found}")
        return
    wanted = {each.name: each.type for each in form.type}
    for field in fields:
        if field.name not in wanted:
            raise TopologyError(f"{label}: the {what}'s format has no field {field.name!r}; add it or use drop()")
        if wanted[field.name] != field.type:
            raise TopologyError(
                f"{label}: the {what}'s format has {field.name!r} as {wanted[field.name]}, the column is {field.type}; "
                f"cast it with with_columns()"
            )
    if missing := [name for name in wanted if name not in [each.name for each in fields]]:
        raise TopologyError(f"{label}: the {what}'s format has a field {missing[0]!r}, but no column is named so")
