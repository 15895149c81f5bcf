"""Values with a schema id, and a registry (a real HTTP server) that has the schemas."""

import json
import pickle
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipeline.formats.choice import choose_format
from ottla.pipeline.registry import Registry, RegistryError, UnknownSchema
from tests.unit.client.shelf import V1, Shelf, framed, served


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def url(shelf: Shelf) -> Iterator[str]:
    with served(shelf) as address:
        yield address


def test_each_value_is_read_by_the_schema_it_names(url: str, shelf: Shelf) -> None:
    # The schemas of two writers make one column, in order. Each id is requested once, and errors are reported row by
    # row.
    form = choose_format("avro", registry=Registry({"schema.registry.url": url}), subject="orders-value")
    values = [
        framed(1, b"\x02"),
        framed(2, b"\x04\x02x"),
        None,
        b"plain",
        framed(9, b""),
        framed(1, b"\x06"),
        b"",
        framed(3, b"\x00"),
        framed(4, b"{}"),
    ]
    found, bad = form.decode(pa.array(values, pa.binary()))
    assert found.type == pa.struct([("id", pa.int64()), ("note", pa.string())])
    rows = found.to_pylist()
    assert (rows[0], rows[1], rows[5]) == ({"id": 1, "note": "-"}, {"id": 2, "note": "x"}, {"id": 3, "note": "-"})
    assert [row for row, value in enumerate(rows) if value is None] == [2, 3, 4, 6, 7, 8]
    assert sorted(bad) == [3, 4, 6, 7, 8]
    assert "does not begin with the id of a schema" in bad[3]
    assert "schema 9" in bad[4] and "Schema not found" in bad[4]
    assert "array is not long" in bad[7]
    assert "it is JSON, not AVRO" in bad[8]
    form.decode(pa.array(values, pa.binary()))
    assert shelf.asked.count("/schemas/ids/1") == 1
    shelf.answers["/subjects/orders-value/versions/latest"] = {"schema": json.dumps(V1)}
    copy = pickle.loads(pickle.dumps(form))
    assert copy.type == form.type
    assert copy.decode(pa.array(values, pa.binary())).column.equals(found)


def test_a_given_schema_overrides_that_of_the_registry(url: str) -> None:
    form = choose_format("avro", schema=json.dumps(V1), registry=Registry({"schema.registry.url": url}))
    assert form.decode(pa.array([framed(1, b"\x02")], pa.binary())).column.to_pylist() == [{"id": 1}]


def test_json_and_protobuf_in_frames(url: str) -> None:
    # JSON Schema gives the types. A Protobuf file brings the files it imports, and values say which message they are.
    registry = Registry({"schema.registry.url": url})
    form = choose_format("json", registry=registry, subject="shop-value")
    assert form.decode(pa.array([framed(4, b'{"id": 3}')], pa.binary())).column.to_pylist() == [{"id": 3}]
    form = choose_format("protobuf", registry=registry, subject="proto-value")
    message = b"\x0a\x03\x0a\x01k"
    values = [framed(5, b"\x00" + message), framed(5, b"\x02\x00" + message), framed(5, b"\x02\x08" + message)]
    found, bad = form.decode(pa.array(values, pa.binary()))
    assert found.to_pylist() == [{"customer": {"name": "k"}}, {"customer": {"name": "k"}}, None]
    assert list(bad) == [2]


def test_credentials_and_further_addresses_of_a_registry(url: str, shelf: Shelf) -> None:
    settings = {"schema.registry.url": f"http://127.0.0.1:1, {url}/", "basic.auth.user.info": "me:secret"}
    registry = pickle.loads(pickle.dumps(Registry(settings)))
    assert registry.by_number(1).kind == "AVRO"
    assert shelf.authorization == ["Basic " + b64encode(b"me:secret").decode()]


def test_a_registry_that_fails_fails_the_read(url: str, shelf: Shelf) -> None:
    # Unlike with a missing schema, records must not count as bad because the registry is down.
    registry = Registry({"schema.registry.url": url})
    form = choose_format("avro", registry=registry, subject="orders-value")
    shelf.failing = True
    with pytest.raises(RegistryError, match="500"):
        form.decode(pa.array([framed(1, b"\x02")], pa.binary()))
    shelf.failing = False
    assert not form.decode(pa.array([framed(1, b"\x02")], pa.binary())).bad
    with pytest.raises(UnknownSchema, match="Schema not found"):
        registry.latest("nobody")
    with pytest.raises(RegistryError, match="refused"):
        Registry({"schema.registry.url": "http://127.0.0.1:1"}).by_number(1)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("xml", {}, "'xml' is no format; there are string, json, avro, protobuf"),
        ("json", {}, "json needs a schema, or a schema registry"),
        ("json", {"schema": "{"}, "not a JSON Schema"),
        ("avro", {"schema": b"{}"}, "a schema for avro cannot be bytes"),
        ("protobuf", {"schema": b""}, "the full name of a message"),
        ("protobuf", {"schema": "not base64!"}, "not a descriptor set in base64"),
    ],
)
def test_a_format_reports_missing_options(name: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        choose_format(name, **options)
    with pytest.raises(ValueError, match="no http or https address"):
        Registry({"schema.registry.url": "registry:8081"})
