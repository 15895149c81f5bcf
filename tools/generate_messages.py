"""Writes `src/ottla/wire/messages/` from the schema that kio carries: one module per API, and an index of the APIs.

APIs that neither the broker nor its clients speak are only in the index.

    python tools/generate_messages.py [directory]

kio has one class per API *version*. They are folded here into one class per message, with the fields of all versions.
Folding fails where one table cannot describe all versions (a field changes its type or its place, or is missing between
two of its versions), so a new release of kio gives a correct table or an error.
"""

import dataclasses
import sys
import typing
from collections.abc import Iterator
from datetime import datetime, timedelta
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

from kio.index import _resolve as resolve
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

NEVER = 32767
LINE = 120
DESTINATION = Path(__file__).parent.parent / "src" / "ottla" / "wire" / "messages"

UNSPOKEN = frozenset(
    (
        # the quorum of controllers, and brokers that register with it
        "add_raft_voter",
        "allocate_producer_ids",
        "alter_partition",
        "assign_replicas_to_dirs",
        "begin_quorum_epoch",
        "broker_heartbeat",
        "broker_registration",
        "controller_registration",
        "end_quorum_epoch",
        "envelope",
        "fetch_snapshot",
        "remove_raft_voter",
        "update_raft_voter",
        "vote",
        # members and state of share groups, members of streams groups
        "delete_share_group_offsets",
        "delete_share_group_state",
        "initialize_share_group_state",
        "read_share_group_state",
        "read_share_group_state_summary",
        "share_acknowledge",
        "share_fetch",
        "share_group_heartbeat",
        "streams_group_heartbeat",
        "write_share_group_state",
        # schemas inside of records and principals
        "control_record_type_schema",
        "default_principal_data",
        "end_txn_marker",
        "k_raft_version_record",
        "leader_change_message",
        "snapshot_footer_record",
        "snapshot_header_record",
        "voters_record",
    )
)
"""Schemas that nothing here uses: they get no module. One that is needed is taken out of this list."""

WIRE_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
PYTHON_TYPES = {
    "bool": "bool",
    "bytes": "bytes",
    "float64": "float",
    "records": "bytes | memoryview",
    "string": "str",
    "uuid": "bytes",
}
ZEROES = {"bool": "False", "bytes": 'b""', "float64": "0.0", "records": 'b""', "string": '""', "uuid": "ZERO_UUID"}


@dataclasses.dataclass
class FoldedField:
    """One field in all its versions."""

    name: str
    type: str
    tag: int | None
    default: Any
    versions: list[int]
    nullable: list[int]

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        return self.type.removeprefix("[]")

    @property
    def is_structure(self) -> bool:
        return self.element[0].isupper()

    def row(self) -> tuple[object, ...]:
        """The line of the field in `FIELDS`, which `ottla.wire.message.Field` unpacks."""
        nullable_from = self.nullable[0] if self.nullable else None
        return (self.name, self.type, self.versions[0], self.versions[-1], nullable_from, self.tag, self.default)


@dataclasses.dataclass
class FoldedClass:
    """One class in all its versions: its fields, and their order in each version."""

    name: str
    fields: dict[str, FoldedField] = dataclasses.field(default_factory=dict)
    orders: list[list[str]] = dataclasses.field(default_factory=list)

    def sort_fields(self) -> list[FoldedField]:
        """The fields in an order that agrees with the order in every version."""
        latest_first = [name for order in reversed(self.orders) for name in order]
        graph: dict[str, list[str]] = {name: [] for name in dict.fromkeys(latest_first)}
        for order in self.orders:
            for before, after in pairwise(order):
                graph[after].append(before)
        names = list(TopologicalSorter(graph).static_order())
        for order in self.orders:
            assert [name for name in names if name in order] == order, (self.name, order)
        return [self.fields[name] for name in names]


@dataclasses.dataclass
class FoldedMessage:
    """A request, a response or a data schema: its classes by kio's names, the message itself last."""

    name: str
    versions: list[int] = dataclasses.field(default_factory=list)
    flexible: list[int] = dataclasses.field(default_factory=list)
    classes: dict[str, FoldedClass] = dataclasses.field(default_factory=dict)

    def fold(self, entity: Any, version: int) -> None:
        self.versions.append(version)
        if entity.__flexible__:
            self.flexible.append(version)
        self.fold_class(entity, version)

    def fold_class(self, entity: Any, version: int) -> None:
        folded = self.classes.setdefault(entity.__name__, FoldedClass(entity.__name__))
        order = []
        for field in dataclasses.fields(entity):
            inner, array, nullable = unwrap_annotation(field.type)
            if dataclasses.is_dataclass(inner):
                self.fold_class(inner, version)
            now = fold_field(field, inner, array)
            order.append(now.name)
            known = folded.fields.setdefault(now.name, now)
            assert (known.type, known.tag, known.default) == (now.type, now.tag, now.default), (entity, now, known)
            add_version(known.versions, version)
            if nullable and now.type not in ("uuid", "int64"):  # kio turns the zero uuid and time -1 into None
                add_version(known.nullable, version)
        if order not in folded.orders:
            folded.orders.append(order)

    def finish(self) -> None:
        """Put the message after its structures, and check the assumptions of the table about versions."""
        self.classes[self.name] = self.classes.pop(self.name)
        assert self.flexible == self.versions[len(self.versions) - len(self.flexible) :], self.name
        for folded in self.classes.values():
            for field in folded.fields.values():
                assert field.versions == list(range(field.versions[0], field.versions[-1] + 1)), field
                assert not field.nullable or field.versions[-len(field.nullable) :] == field.nullable, field

    @property
    def flexible_from(self) -> int:
        return self.flexible[0] if self.flexible else NEVER


def add_version(versions: list[int], version: int) -> None:
    """Add a version once: a structure that a message uses twice comes twice per version."""
    if version not in versions:
        versions.append(version)


def unwrap_annotation(annotation: Any) -> tuple[Any, bool, bool]:
    """The type inside `tuple[..., ...] | None`, whether there is a tuple, and whether null is allowed outside of it."""
    arguments = typing.get_args(annotation)
    if type(None) in arguments:
        inner, array, _ = unwrap_annotation(next(argument for argument in arguments if argument is not type(None)))
        return inner, array, True
    if typing.get_origin(annotation) is tuple:
        return unwrap_annotation(arguments[0])[0], True, False
    return annotation, False, False


def fold_field(field: dataclasses.Field[Any], inner: Any, array: bool) -> FoldedField:
    kio_type = field.metadata.get("kafka_type")
    wire_type = inner.__name__ if kio_type is None else WIRE_TYPES.get(kio_type, kio_type)
    is_time = kio_type is not None and kio_type.startswith(("timedelta", "datetime"))
    name = f"{field.name}_ms" if is_time and not field.name.endswith("_ms") else field.name
    default = fold_default(field.default, unwrap_annotation(field.type)[2], is_time)
    return FoldedField(name, "[]" * array + wire_type, field.metadata.get("tag"), default, [], [])


def fold_default(default: Any, nullable: bool, is_time: bool) -> Any:
    """The default as the table has it. None: null where that is allowed, otherwise zero or an empty structure."""
    if default is None:
        return -1 if is_time else None
    if default is dataclasses.MISSING or dataclasses.is_dataclass(default):
        return None
    if isinstance(default, timedelta):
        default = default // timedelta(milliseconds=1)
    assert not isinstance(default, datetime)
    if not nullable and not default:
        return None
    return str(default) if isinstance(default, str) else default if isinstance(default, (bool, tuple)) else int(default)


def format_python_type(field: FoldedField) -> str:
    element = field.element if field.is_structure else PYTHON_TYPES.get(field.element, "int")
    whole = f"list[{element}]" if field.is_array else element
    return f"{whole} | None" if field.nullable else whole


def format_parameter(field: FoldedField) -> str:
    """The parameter of `__init__`. Its default is the one of the protocol."""
    annotation = format_python_type(field)
    if field.default is not None and field.default != ():
        return f"{field.name}: {annotation} = {format_literal(field.default)}"
    if field.nullable and field.default is None:
        return f"{field.name}: {annotation} = None"
    if field.is_array:
        return f"{field.name}: {annotation} = EMPTY"
    if field.is_structure:
        return f"{field.name}: {annotation} | None = None"
    return f"{field.name}: {annotation} = {ZEROES.get(field.element, '0')}"


def format_assignment(field: FoldedField) -> str:
    if field.is_array and not (field.nullable and field.default is None):
        return f"self.{field.name} = [] if {field.name} is EMPTY else {field.name}"
    if field.is_structure and not field.nullable:
        return f"self.{field.name} = {field.element}() if {field.name} is None else {field.name}"
    return f"self.{field.name} = {field.name}"


def format_literal(value: object) -> str:
    """Like `repr`, with double quotes."""
    if isinstance(value, tuple):
        return f"({', '.join(map(format_literal, value))}{',' * (len(value) == 1)})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def format_brackets(opening: str, items: list[str]) -> list[str]:
    """`opening(items)` on one line if it fits, otherwise one item per line; indented as in a class."""
    line = f"    {opening}({', '.join(items)}{',' * (len(items) == 1)})"
    if len(line) <= LINE:
        return [line]
    return [f"    {opening}(", *(f"        {item}," for item in items), "    )"]


def format_initializer(fields: list[FoldedField]) -> list[str]:
    if not fields:
        return []
    parameters = [format_parameter(field) for field in fields]
    line = f"    def __init__(self, *, {', '.join(parameters)}) -> None:"
    head = [line]
    if len(line) > LINE:
        head = ["    def __init__(", "        self,", "        *,"]
        head += [f"        {each}," for each in parameters] + ["    ) -> None:"]
    return ["", *head, *(f"        {format_assignment(field)}" for field in fields)]


def format_class(folded: FoldedClass, message: FoldedMessage) -> list[str]:
    fields = folded.sort_fields()
    lines = ["", "", f"class {folded.name}(Message):"]
    lines += format_brackets("__slots__ = ", [format_literal(name) for name in sorted(field.name for field in fields)])
    if fields:
        lines += format_brackets("FIELDS = ", [format_literal(field.row()) for field in fields])
    if folded.name == message.name:
        lines += [f"    VERSIONS = {format_range(message.versions)}"]
        lines += [f"    FLEXIBLE_FROM = {message.flexible_from}"] if message.flexible else []
    return lines + format_initializer(fields)


def format_range(versions: list[int]) -> str:
    assert versions == list(range(versions[0], versions[-1] + 1)), versions
    return f"range({versions[0]}, {versions[-1] + 1})"


def rename_ambiguous_structures(messages: list[FoldedMessage]) -> None:
    """Where request and response have different structures of the same name, put the name of the message before it."""
    names = [name for message in messages for name in message.classes]
    for message in messages:
        new_names = {name: f"{message.name}{name}" for name in message.classes if names.count(name) > 1}
        assert not set(new_names.values()) & set(names), new_names
        for folded in message.classes.values():
            folded.name = new_names.get(folded.name, folded.name)
            for field in folded.fields.values():
                if field.element in new_names:
                    field.type = field.type.replace(field.element, new_names[field.element])


def format_module(title: str, messages: list[FoldedMessage], api_key: int | None) -> str:
    """The text of one module. Request and response have the same versions."""
    first = messages[0]
    assert all((each.versions, each.flexible_from) == (first.versions, first.flexible_from) for each in messages)
    subject = "a schema inside of records" if api_key is None else f"API key {api_key}"
    body = [line for each in messages for folded in each.classes.values() for line in format_class(folded, each)]
    used = [name for name in ("EMPTY", "ZERO_UUID") if any(name in line for line in body)]
    head = [
        f'"""{title}: {subject}, versions {first.versions[0]} to {first.versions[-1]}.',
        "",
        "Generated by tools/generate_messages.py; change that, not this.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        f"from ottla.wire.message import {', '.join([*used, 'Message'])}",
        "",
    ]
    if api_key is not None:
        head += [f"API_KEY = {api_key}"]
    head += [f"VERSIONS = {format_range(first.versions)}", f"FLEXIBLE_FROM = {first.flexible_from}"]
    return "\n".join(head + body) + "\n"


def fold_messages(folder: str) -> list[FoldedMessage]:
    messages: dict[EntityType, FoldedMessage] = {}
    for version, entities in sorted(schema_name_map[folder].items()):
        for kind, path in sorted(entities.items(), key=lambda item: item[0].value):
            if kind is not EntityType.header:
                entity: Any = resolve(path)
                messages.setdefault(kind, FoldedMessage(entity.__name__)).fold(entity, version)
    for message in messages.values():
        message.finish()
    rename_ambiguous_structures(list(messages.values()))
    return list(messages.values())


def format_index(spoken: list[str], unspoken: list[str]) -> str:
    row_type = "tuple[tuple[int, str, str, int, int, int], ...]"
    head = [
        '"""Every API of Kafka: key, name, module, first and last version, first flexible version.',
        "",
        "Generated by tools/generate_messages.py; change that, not this.",
        '"""',
        "",
    ]
    tables = [f"APIS: {row_type} = (", *(f"    {row}," for row in spoken), ")", ""]
    tables += [f"UNSPOKEN: {row_type} = (", *(f"    {row}," for row in unspoken), ")"]
    return "\n".join([*head, *tables, '"""APIs that have no module, because nothing here uses them."""']) + "\n"


def generate_files() -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each file."""
    yield (
        "__init__.py",
        '"""The messages of every API that is spoken here, generated by tools/generate_messages.py."""\n',
    )
    assert set(schema_name_map) >= UNSPOKEN, sorted(UNSPOKEN - set(schema_name_map))
    keys = {folder: key for key, folder in api_key_map.items()}
    rows: dict[int, tuple[object, ...]] = {}
    for folder in sorted(schema_name_map):
        messages = fold_messages(folder)
        if not messages:
            continue
        key = keys.get(folder)
        title = messages[0].name.removesuffix("Request") if key is not None else messages[0].name
        if folder not in UNSPOKEN:
            yield f"{folder}.py", format_module(title, messages, key)
        if key is not None:
            assert [each.name for each in messages] == [f"{title}Request", f"{title}Response"], folder
            versions = messages[0].versions
            rows[int(key)] = (int(key), title, folder, versions[0], versions[-1], messages[0].flexible_from)
    spoken = [format_literal(rows[key]) for key in sorted(rows) if rows[key][2] not in UNSPOKEN]
    unspoken = [format_literal(rows[key]) for key in sorted(rows) if rows[key][2] in UNSPOKEN]
    yield "index.py", format_index(spoken, unspoken)


def main() -> None:
    destination = Path(sys.argv[1]) if len(sys.argv) > 1 else DESTINATION
    destination.mkdir(parents=True, exist_ok=True)
    for name, text in generate_files():
        (destination / name).write_text(text)


if __name__ == "__main__":
    main()
