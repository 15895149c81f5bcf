"""Sources and sinks: how the records of a topic become columns, and columns records, as the user says or by default."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import StructType

from ottla.streams import formats
from ottla.streams.columns import check_names, to_item
from ottla.streams.errors import TopologyError
from ottla.streams.formats import CANONICAL_TYPES, RecordFormat
from ottla.streams.graph import Node, Sink, Source
from ottla.streams.relation import Relation, check_columns
from ottla.streams.topology import Topology, sources_of

Format = str | StructType | RecordFormat
"""What a user says about a key or a value: a type such as "string" or "long" for one column; fields in SQL syntax or a
schema of Spark for JSON; or one of json(...), avro(...), protobuf(...) and registry(...) in `ottla.streams.formats`."""

START: Final = ("earliest", "latest")
_TOPIC_COLUMN: Final = "topic"
"""The column that a computed topic is in, until the sink."""
_WIDER: Final = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}
"""Types that a sink can write values of a type as, because nothing is lost."""


# Sources


def make_source(
    label: str,
    topic: str,
    *,
    key: object,
    value: object,
    key_column: str,
    time: str | None,
    start: str,
    name: str | None = None,
    is_table: bool = False,
) -> Source:
    """A source with its columns: those of the key first."""
    if not isinstance(key_column, str) or not key_column:
        raise TopologyError(f"{label}: key_column={key_column!r}: it must be the name of a column")
    key_format = _resolve(label, "key", key, topic)
    value_format = _resolve(label, "value", value, topic)
    keys, values = _fields(key_format, key_column), _fields(value_format, "value")
    names = [each.name for each in keys]
    for field in values:
        if field.name in names:
            raise TopologyError(
                f"{label}: the value has a field {field.name!r}, which is also a column of the key; call that "
                f"otherwise with key_column=, or leave the field out of value="
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
    kind = form.resolved_type
    return list(kind) if pa.types.is_struct(kind) else [pa.field(name, kind)]


def _check_time(label: str, columns: pa.Schema, time: str) -> None:
    if time not in columns.names:
        raise TopologyError(f"{label}: time={time!r}: there is no such column; there are {', '.join(columns.names)}")
    kind = columns.field(time).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_int64(kind)):
        raise TopologyError(f"{label}: time={time!r} is {kind}; it must be a timestamp, or a long with milliseconds")


# Sinks


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
        topology.check_topic(label, topic)
        node, column = relation.node, None
    elif isinstance(topic, Column):
        node, column = _add_topic_column(relation, label, topic)
    else:
        raise TopologyError(f"{label}: {topic!r} is neither the name of a topic nor a Column with names of topics")
    name = topic if isinstance(topic, str) else ""
    value_format = _choose_value_format(label, node, value, name, relation.value_columns)
    sink = Sink(
        label,
        (node,),
        node.columns,
        node.key,
        is_table=node.is_table,
        topic=name or None,
        topic_column=column,
        key_format=_choose_key_format(label, node, key, name),
        value_format=value_format,
        value_columns=_names_in_value(value_format, relation.value_columns),
    )
    for source in topology.sources_of_topic(name):
        _check_loop(sink, source, allows_loop=allows_loop)
        check_round_trip(sink.label, sink, source)
    return sink


def _add_topic_column(relation: Relation, label: str, topic: Column) -> tuple[Node, str]:
    """The rows with a column of topics, and its name. A computed one is not a part of the value."""
    name = to_item(label, topic).plain_name
    if name is None:
        name = _TOPIC_COLUMN
        if name in relation.columns:
            raise TopologyError(f"{label}: there is a column {name!r} already; rename it")
        relation = relation.add_columns(label, {name: topic}, in_value=False)
    check_columns(label, relation.node, [name])
    kind = relation.node.columns.field(name).type
    if not pa.types.is_string(kind):
        raise TopologyError(f"{label}: {name!r} is {kind}; names of topics are strings")
    return relation.node, name


def _choose_key_format(label: str, node: Node, given: object, topic: str) -> RecordFormat:
    """How a sink writes the key: as Kafka's serializers do if it is one simple column, otherwise as JSON."""
    fields = [node.columns.field(name) for name in node.key]
    chosen = _resolve(label, "key", _default_format(fields) if given is None else given, topic, fields)
    _check_fit(label, "key", chosen, fields, fields)
    return chosen


def _choose_value_format(label: str, node: Node, given: object, topic: str, value: Sequence[str]) -> RecordFormat:
    """How a sink writes the value: the column `value` alone as it is, any other columns as JSON. A format with a schema
    may ask for other columns as well, such as those of the key."""
    fields = [node.columns.field(name) for name in value]
    if given is None:
        is_single = len(fields) == 1 and fields[0].name == "value"
        given = _default_format(fields) if is_single else RecordFormat("json", type=pa.struct(fields))
    chosen = _resolve(label, "value", given, topic, fields)
    _check_fit(label, "value", chosen, fields, list(node.columns))
    return chosen


def _default_format(fields: Sequence[pa.Field]) -> RecordFormat:
    kinds = [kind for kind, each in CANONICAL_TYPES.items() if len(fields) == 1 and each == fields[0].type]
    return RecordFormat(kinds[0], type=fields[0].type) if kinds else RecordFormat("json", type=pa.struct(fields))


def _names_in_value(form: RecordFormat, value: Sequence[str]) -> tuple[str, ...]:
    kind = form.resolved_type
    return tuple(field.name for field in kind) if pa.types.is_struct(kind) else tuple(value)


def _resolve(
    label: str, part: str, given: object, topic: str, fields: Sequence[pa.Field] | None = None
) -> RecordFormat:
    try:
        return formats.resolve(given, topic=topic, part=part, columns=fields)
    except ValueError as error:
        raise TopologyError(f"{label}: {part}: {error}") from None


def _check_fit(
    label: str, part: str, form: RecordFormat, needed: Sequence[pa.Field], possible: Sequence[pa.Field]
) -> None:
    """TopologyError unless the format takes all columns `needed`, and takes only columns that are `possible`."""
    kind = form.resolved_type
    if not pa.types.is_struct(kind):
        if len(needed) != 1 or not _fits(needed[0].type, kind):
            found = ", ".join(f"{each.name} {each.type}" for each in needed) or "nothing"
            raise TopologyError(f"{label}: {part}={form.kind!r} takes one column of type {kind}; there is {found}")
        return
    wanted = {each.name: each.type for each in kind}
    types = {each.name: each.type for each in possible}
    for field in needed:
        if field.name not in wanted:
            raise TopologyError(
                f"{label}: the {part}'s schema has no field {field.name!r}; add it, or drop() the column"
            )
    for name, want in wanted.items():
        if name not in types:
            raise TopologyError(f"{label}: the {part}'s schema has a field {name!r}, but there is no such column")
        if not _fits(types[name], want):
            raise TopologyError(
                f"{label}: the {part}'s schema has {name!r} as {want}, the column is {types[name]}; cast it with "
                f"with_columns()"
            )


def _fits(column: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(column) and pa.types.is_timestamp(wanted):
        return (column.tz is None) == (wanted.tz is None)
    return bool(column == wanted) or wanted in _WIDER.get(column, ())


# Topics that the app both writes and reads


def check_round_trip(label: str, sink: Sink, source: Source) -> None:
    """TopologyError unless what the sink writes can be read by the source."""
    for part, written, read in (
        ("key", sink.key_format, source.key_format),
        ("value", sink.value_format, source.value_format),
    ):
        if written.kind != read.kind or not _is_readable(written.resolved_type, read.resolved_type):
            raise TopologyError(
                f"{label}: {sink.label} writes the {part} of {source.topic!r} as {_describe(written)}, and "
                f"{source.label} reads it as {_describe(read)}; make them equal"
            )


def _is_readable(written: Any, read: Any) -> bool:
    if not pa.types.is_struct(read) or not pa.types.is_struct(written):
        return bool(written == read)
    types = {each.name: each.type for each in written}
    return all(each.name in types and _fits(types[each.name], each.type) for each in read)


def _describe(form: RecordFormat) -> str:
    kind = form.resolved_type
    if not pa.types.is_struct(kind):
        return form.kind
    return f"{form.kind} ({', '.join(f'{each.name} {each.type}' for each in kind)})"


def _check_loop(sink: Sink, source: Source, *, allows_loop: bool) -> None:
    if source in sources_of(sink) and not allows_loop:
        raise TopologyError(
            f"{sink.label}: these rows come from the topic {source.topic!r} itself and would go round for ever; write "
            f"to another topic, or say allows_loop=True if a filter ends the loop"
        )
