"""Stores as JSON."""

import orjson
import pyarrow as pa
import pytest

from ottla.streams.formats import RecordFormat
from ottla.streams.kernels.kernel import StoreSpec
from ottla.streams.planning.plan import StorePlan
from ottla.streams.state.assignments import describe_store, read_store
from ottla.streams.state.protocol import ProtocolError

KEY, VALUE = pa.schema([("id", pa.int64())]), pa.schema([("at", pa.timestamp("us", "UTC")), ("name", pa.string())])
SOURCE = StorePlan(
    StoreSpec("users", is_source=True),
    "users",
    KEY,
    VALUE,
    key_format=RecordFormat("long", type=pa.int64()),
    value_format=RecordFormat("protobuf", b"\0\xff", "User", "http://registry", "users-value", pa.struct(list(VALUE))),
)
WINDOWS = StorePlan(StoreSpec("revenue"), "app-revenue-changelog", KEY, VALUE, "window", False)


@pytest.mark.parametrize("plan", [SOURCE, WINDOWS], ids=lambda plan: plan.spec.name)
def test_stores_come_back(plan: StorePlan) -> None:
    assert read_store(orjson.loads(orjson.dumps(describe_store(plan)))) == plan


@pytest.mark.parametrize("change", [{"key_columns": "no schema"}, {"name": ...}, {"value_format": {"kind": 7}}])
def test_a_description_that_is_wrong_is_refused(change: dict[str, object]) -> None:
    described = describe_store(WINDOWS) | change
    with pytest.raises(ProtocolError, match="the description of a store is malformed"):
        read_store({name: value for name, value in described.items() if value is not ...})
