"""The search sink on a broker, Spark and a real OpenSearch."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from ottla.connect.connector import ConnectorContext, SinkBatch
from ottla.connect.connectors.search.search_sink import ElasticsearchSink
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import RetriableError
from ottla.connect.settings.parsing import parse
from ottla.testing import LocalBroker
from tests.connect.documented import read_documented_config
from tests.connect.opensearch import opensearch, read_documents
from tests.connect.runs import read_group, running, wait_until
from tests.spark.topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with opensearch(tmp_path_factory.mktemp("opensearch")) as found:
        yield found


def make_sink(address: str, **more: str) -> ElasticsearchSink:
    given = {"connection.url": address, "read.timeout.ms": "60000", **{k.replace("_", "."): v for k, v in more.items()}}
    sink = ElasticsearchSink(parse(ElasticsearchSink.settings, given), ConnectorContext("unit", "workers", 1, {}))
    sink.start()
    return sink


def make_batch(topic: str, values: list[tuple[Any, Any]], first: int = 0, schema: Schema | None = None) -> SinkBatch:
    """Keys and values."""
    records = [
        Record(topic, value, None if value is None else schema, key, partition=0, offset=first + n)
        for n, (key, value) in enumerate(values)
    ]
    return SinkBatch(topic, 0, first, first + len(values), [records])


def test_the_latest_value_of_each_key(spark: "SparkSession", broker: LocalBroker, address: str) -> None:
    """The documented configuration: updates and deletions, and a restart that writes everything again."""
    config = {**read_documented_config("search"), "connection.url": address, "read.timeout.ms": "60000"}
    broker.create_topic("products", partitions=2)
    rows = [{"key": f"p{n % 10}", "value": json.dumps({"n": n}), "partition": n % 2} for n in range(100)]
    rows += [{"key": "p3", "value": None, "partition": 1}]
    send(broker, "products", rows)
    expected = {f"p{n % 10}": {"n": n} for n in range(90, 100) if n % 10 != 3}
    for name in ("search", "search-again"):
        settings = {key.replace(".", "_"): text for key, text in config.items() if key != "name"}
        del settings["connector_class"]
        with running(spark, broker, ElasticsearchSink, name, **settings) as sink:
            wait_until(lambda name=name: sum(read_group(broker, name).values()) == 101, lambda sink=sink: sink.status)  # type: ignore[misc]
        assert read_documents(address, "products") == expected


def test_repeated_and_late_writes_change_nothing(address: str) -> None:
    """A batch that is written again, also in part, and after what followed it."""
    sink = make_sink(address, behavior_on_null_values="delete")
    older = make_batch("repeats", [("a", {"n": 0}), ("b", {"n": 1}), ("a", {"n": 2})])
    newer = make_batch("repeats", [("b", None), ("a", {"n": 4})], 3)
    for batch in (older, newer, older, newer, older):
        assert not sink.write(batch).refused
    assert read_documents(address, "repeats") == {"a": {"n": 4}}


def test_each_record_is_a_document_without_keys(address: str) -> None:
    sink = make_sink(address, key_ignore="true", batch_size="2")
    for _ in range(2):
        sink.write(make_batch("Events", [(None, {"n": n}) for n in range(5)]))
    assert read_documents(address, "events") == {f"Events+0+{n}": {"n": n} for n in range(5)}


def test_upserts_change_the_fields_they_have(address: str) -> None:
    sink = make_sink(address, write_method="upsert")
    sink.write(make_batch("merged", [("a", {"x": 1}), ("a", {"y": 2})]))
    assert read_documents(address, "merged") == {"a": {"x": 1, "y": 2}}


def test_documents_that_do_not_fit_are_refused(address: str) -> None:
    """By the mapping that the schema of the first record made; the others are written."""
    schema = Schema(Type.STRUCT, fields=(Field("n", Schema(Type.INT32)),))
    sink = make_sink(address)
    assert not sink.write(make_batch("strict", [("a", {"n": 1})], 0, schema)).refused
    mapping = urllib3.request("GET", f"{address}/strict/_mapping").json()
    assert mapping["strict"]["mappings"]["properties"] == {"n": {"type": "integer"}}
    written = sink.write(
        make_batch("strict", [("b", {"n": "many"}), ("c", {"n": 2}), (None, {"n": 3}), ("d", None)], 1)
    )
    assert [each.record.offset for each in written.refused] == [3, 4, 1]
    assert "strict: mapper_parsing_exception" in written.refused[-1].reason
    assert read_documents(address, "strict") == {"a": {"n": 1}, "c": {"n": 2}}
    assert (
        not make_sink(address, behavior_on_malformed_documents="ignore")
        .write(make_batch("strict", [("b", {"n": "many"})], 5))
        .refused
    )


def test_a_server_that_is_away(address: str) -> None:
    """Another one of the list is asked; with none the batch is tried again later."""
    make_sink(f"http://127.0.0.1:1,{address}").write(make_batch("away", [("a", {"n": 1})]))
    assert read_documents(address, "away") == {"a": {"n": 1}}
    with pytest.raises(RetriableError, match="no server of the search cluster can be reached"):
        make_sink("http://127.0.0.1:1")
