"""Bulk requests to a search cluster: their lines, their size, and what becomes of each record."""

import json
from typing import Any

import pytest

from ottla.connect.connectors.search.bulk import cut, list_malformed, make_operation, name_index
from ottla.connect.connectors.search.mappings import make_mapping
from ottla.connect.connectors.search.search_sink import ElasticsearchSink
from ottla.connect.data.logical import TIMESTAMP_SCHEMA, make_decimal_schema
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import BadConfig, ConnectError, RecordError, RetriableError
from ottla.connect.settings.parsing import parse


def make_record(key: Any = "k", offset: int = 7) -> Record:
    return Record("Orders", {"a": 1}, key=key, partition=2, offset=offset)


def read_lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def test_the_lines_of_each_operation() -> None:
    """Documents of keys have versions, for which cluster and sink agree what is old."""
    versioned = {"_index": "orders", "_id": "k", "version": 7, "version_type": "external"}
    plain = {"_index": "orders", "_id": "Orders+2+7"}
    document = b'{"a":1}'
    assert read_lines(make_operation(make_record(), document, False, False).lines) == [{"index": versioned}, {"a": 1}]
    assert read_lines(make_operation(make_record(), None, False, False).lines) == [{"delete": versioned}]
    assert read_lines(make_operation(make_record(), document, True, False).lines) == [{"index": plain}, {"a": 1}]
    [head, body] = read_lines(make_operation(make_record(3), document, False, True).lines)
    assert head == {"update": {"_index": "orders", "_id": "3", "retry_on_conflict": 5}}
    assert body == {"doc": {"a": 1}, "doc_as_upsert": True}


@pytest.mark.parametrize("key", [None, True, {"a": 1}, b"x", "", "x" * 513])
def test_keys_that_cannot_be_ids(key: Any) -> None:
    with pytest.raises(RecordError):
        make_operation(make_record(key), b"{}", False, False)


def test_values_that_cannot_be_documents() -> None:
    with pytest.raises(RecordError, match="no struct and no map"):
        make_operation(make_record(), b'"text"', False, False)


def test_requests_are_cut_by_number_and_size() -> None:
    """A document that is larger than the limit has a request of its own."""
    found = [make_operation(make_record(offset=n), b'{"a":%d}' % n, False, False) for n in range(5)]
    assert [len(each) for each in cut(found, 2, -1)] == [2, 2, 1]
    assert [len(each) for each in cut(found, 100, 2 * len(found[0].lines))] == [2, 2, 1]
    assert [len(each) for each in cut(found, 100, 1)] == [1] * 5
    assert list(cut([], 1, 1)) == []


def answer(kind: str, status: int, error: str | None = None) -> dict[str, Any]:
    result: dict[str, Any] = {"status": status}
    if error is not None:
        result["error"] = {"type": error, "reason": "why"}
    return {"errors": True, "items": [{kind: result}]}


def test_what_the_answer_says() -> None:
    versioned = [make_operation(make_record(), b"{}", False, False)]
    upsert = [make_operation(make_record(), b"{}", False, True)]
    assert list_malformed(versioned, {"errors": False}) == []
    for done in (
        answer("index", 201),
        answer("index", 409, "version_conflict_engine_exception"),
        answer("delete", 404),
    ):
        assert list_malformed(versioned, done) == []
    [(record, reason)] = list_malformed(versioned, answer("index", 400, "mapper_parsing_exception"))
    assert record.offset == 7
    assert reason == "orders: mapper_parsing_exception: why (status 400)"
    for operations, later in (
        (versioned, answer("index", 429, "rejected_execution_exception")),
        (versioned, answer("index", 503, "unavailable_shards_exception")),
        (versioned, answer("index", 403, "cluster_block_exception")),
        (upsert, answer("update", 409, "version_conflict_engine_exception")),
    ):
        with pytest.raises(RetriableError):
            list_malformed(operations, later)
    with pytest.raises(ConnectError, match="index_not_found_exception"):
        list_malformed(versioned, answer("index", 404, "index_not_found_exception"))


def test_names_of_indices() -> None:
    assert [name_index(each) for each in ("Orders", "_x", "-A-b_", ".", "x" * 300)] == [
        "orders",
        "x",
        "a-b_",
        "dot",
        "x" * 255,
    ]


def test_mappings_of_schemas() -> None:
    text = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
    inner = Schema(Type.STRUCT, fields=(Field("n", Schema(Type.INT32)),))
    fields = {
        "id": Schema(Type.INT64),
        "name": Schema(Type.STRING),
        "names": Schema(Type.ARRAY, value_schema=Schema(Type.STRING)),
        "when": TIMESTAMP_SCHEMA,
        "price": make_decimal_schema(2),
        "inner": inner,
    }
    schema = Schema(Type.STRUCT, fields=tuple(Field(name, each) for name, each in fields.items()))
    assert make_mapping(schema) == {
        "properties": {
            "id": {"type": "long"},
            "name": text,
            "names": text,
            "when": {"type": "date"},
            "price": {"type": "double"},
            "inner": {"properties": {"n": {"type": "integer"}}},
        }
    }


@pytest.mark.parametrize(
    "config",
    [
        {"write.method": "replace"},
        {"external.version.header": "v"},
        {"data.stream.dataset": "x"},
        {"elastic.https.ssl.truststore.location": "trust.jks"},
    ],
)
def test_what_cannot_be_obeyed_is_refused(config: dict[str, str]) -> None:
    with pytest.raises(BadConfig, match=next(iter(config))):
        parse(ElasticsearchSink.settings, {"connection.url": "http://localhost:1", **config})
