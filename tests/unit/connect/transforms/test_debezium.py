"""Rows out of the envelopes of change capture."""

from typing import Any

import pytest

from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.transforms.chain import make_transforms

ROW = Schema(Type.STRUCT, optional=True, name="Value", fields=(Field("id", Schema(Type.INT32)),))
SOURCE = Schema(Type.STRUCT, fields=(Field("lsn", Schema(Type.INT64)), Field("table", Schema(Type.STRING))))
ENVELOPE = Schema(
    Type.STRUCT,
    fields=(Field("before", ROW), Field("after", ROW), Field("source", SOURCE), Field("op", Schema(Type.STRING))),
)


def make_change(op: str, before: int | None, after: int | None) -> Record:
    rows = {name: None if value is None else {"id": value} for name, value in (("before", before), ("after", after))}
    value = {**rows, "source": {"lsn": 9, "table": "a"}, "op": op}
    return Record("t", value, ENVELOPE, key={"id": before or after})


def transform(record: Record, **settings: str) -> Record | None:
    given = {f"transforms.a.{name.replace('_', '.')}": text for name, text in settings.items()}
    kind = "io.debezium.transforms.ExtractNewRecordState"
    return make_transforms({"transforms": "a", "transforms.a.type": kind, **given}).apply(record)


@pytest.mark.parametrize(
    ("settings", "deletion", "tombstone"),
    [
        ({}, "dropped", False),
        ({"drop_tombstones": "false"}, "dropped", True),
        ({"delete_handling_mode": "none"}, None, False),
        ({"delete_handling_mode": "rewrite"}, {"id": 7, "__deleted": "true"}, False),
        ({"delete_tombstone_handling_mode": "drop"}, "dropped", False),
        ({"delete_tombstone_handling_mode": "tombstone"}, "dropped", True),
        ({"delete_tombstone_handling_mode": "delete-to-tombstone"}, None, False),
        ({"delete_tombstone_handling_mode": "rewrite"}, {"id": 7, "__deleted": "true"}, False),
        ({"delete_tombstone_handling_mode": "rewrite-with-tombstone"}, {"id": 7, "__deleted": "true"}, True),
    ],
)
def test_deletions_and_tombstones(settings: dict[str, str], deletion: Any, tombstone: bool) -> None:
    changed = transform(make_change("d", 7, None), **settings)
    assert ("dropped" if changed is None else changed.value) == deletion
    assert (transform(Record("t", None, key={"id": 7}), **settings) is not None) == tombstone


def test_rows_with_fields_of_the_envelope() -> None:
    changed = transform(make_change("u", 7, 8), add_fields="op,source.lsn:at,table,nothing")
    assert changed is not None
    assert changed.value == {"id": 8, "__op": "u", "__at": 9, "__table": "a", "__nothing": None}
    assert changed.value_schema is not None
    assert [(each.name, each.schema.type) for each in changed.value_schema.fields] == [
        ("id", Type.INT32),
        ("__op", Type.STRING),
        ("__at", Type.INT64),
        ("__table", Type.STRING),
        ("__nothing", Type.STRING),
    ]
    assert not changed.value_schema.optional
    plain = Record("t", make_change("r", None, 3).value)
    rewritten = transform(plain, delete_handling_mode="rewrite")
    assert rewritten is not None
    assert (rewritten.value, rewritten.value_schema) == ({"id": 3, "__deleted": "false"}, None)


def test_what_is_no_envelope_stays_and_truncations_go() -> None:
    heartbeat = Record("h", {"ts_ms": 1})
    assert transform(heartbeat) is heartbeat
    assert transform(make_change("t", None, None)) is None


def test_headers_and_topics_from_the_envelope() -> None:
    changed = transform(make_change("u", 7, 8), add_headers="op,source.lsn:at,nothing", add_headers_prefix="h-")
    assert changed is not None
    found = [(each.key, each.value, each.schema and each.schema.type) for each in changed.headers]
    assert found == [("h-op", "u", Type.STRING), ("h-at", 9, Type.INT64), ("h-nothing", None, Type.STRING)]
    deleted = transform(make_change("d", 7, None), add_headers="op", delete_handling_mode="none", route_by_field="id")
    assert deleted is not None
    assert (deleted.topic, deleted.value, [each.value for each in deleted.headers]) == ("7", None, ["d"])
    with pytest.raises(RecordError, match="the row has no region that names its topic"):
        transform(make_change("u", 7, 8), route_by_field="region")


@pytest.mark.parametrize("name", ["drop_fields_header_name", "operation_header"])
def test_settings_of_debezium_that_are_refused(name: str) -> None:
    with pytest.raises(BadConfig, match=f"{name.replace('_', '.')}=true is not supported"):
        transform(make_change("u", 7, 8), **{name: "true"})
