"""Rows of tables out of records."""

import pytest

from ottla.connect.connector import RefusedRecord
from ottla.connect.connectors.jdbc.rows import RowMaker
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type

VALUE = Schema(Type.STRUCT, fields=(Field("id", Schema(Type.INT32)), Field("name", Schema(Type.STRING))))
SETTINGS = {"pk.fields": ["id"], "fields.whitelist": [], "table.name.format": "${topic}", "delete.enabled": False}


@pytest.mark.parametrize(
    ("mode", "reasons"),
    [("record_key", ["pk.mode is record_key, and the key has no schema"] * 2), ("record_value", [])],
)
def test_keys_without_a_schema(mode: str, reasons: list[str]) -> None:
    """JSON without schemas is what many topics have as keys. Where nobody asks for them they do not matter."""
    refused: list[RefusedRecord] = []
    records = [Record("t", {"id": n, "name": "x"}, VALUE, {"id": n}, offset=n, partition=0) for n in range(2)]
    made = RowMaker({**SETTINGS, "pk.mode": mode}).make([records], 0, refused)
    assert [each.reason for each in refused] == reasons
    assert sum(map(len, made)) == 2 - len(reasons)
