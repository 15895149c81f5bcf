"""Rows out of PostgreSQL and into it: change capture beside Debezium's, a sink beside Debezium's JDBC sink, and a table
that is read beside Spark's own JDBC source."""

import json
import subprocess
import sys
import time
from collections.abc import Callable

from confluent_kafka import Producer

from benchmarks.connect.measuring import Bench, TopicEnds, Workload, measure_rows
from benchmarks.connect.workers import RunningWorker, wait_for
from benchmarks.loads.bulk import build_producer_settings, flush
from benchmarks.loads.topics import Mismatch, create_topic
from benchmarks.peers.apache_kafka import Unavailable, find_debezium_jars
from benchmarks.peers.broker_process import HOST, read_usage
from benchmarks.peers.ottla_broker import build_environment
from benchmarks.peers.postgresql import LOGICAL, PostgreSqlServer, run_postgresql
from benchmarks.report import Row
from benchmarks.streams.topics import FILLER, count_records

DATABASE = "postgres"
TABLE = """
CREATE TABLE rows (id int PRIMARY KEY, amount float8 NOT NULL, note text NOT NULL);
CREATE PUBLICATION rows_only FOR TABLE rows
"""
COLUMNS = "n, n / 7.0, repeat('as it was before ', 5) || n"
JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
}
PLAIN = JSON | {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}


def _need(run: Callable[[Bench, int, PostgreSqlServer], dict[Row, float]]) -> Callable[[Bench, int], dict[Row, float]]:
    """A server for each run."""

    def with_server(bench: Bench, side: int) -> dict[Row, float]:
        try:
            with run_postgresql(LOGICAL) as server:
                return run(bench, side, server)
        except Unavailable as reason:
            raise Mismatch(str(reason)) from None

    return with_server


@_need
def measure_capture(bench: Bench, side: int, server: PostgreSqlServer) -> dict[Row, float]:
    """First the rows that are there, then as many inserts in one transaction."""
    rows = bench.size.rows
    server.run(f"{TABLE}; INSERT INTO rows SELECT {COLUMNS} FROM generate_series(1, {rows}) n")
    jars = [find_debezium_jars()] if side else []
    with RunningWorker(side, bench.bootstrap, jars) as worker:
        prefix = worker.name
        topic = f"{prefix}.public.rows"
        create_topic(bench.bootstrap, topic)
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": HOST,
            "database.port": str(server.port),
            "database.user": "postgres",
            "database.password": "none",
            "database.dbname": DATABASE,
            "topic.prefix": prefix,
            "plugin.name": "pgoutput",
            "publication.name": "rows_only",
            "publication.autocreate.mode": "disabled",
            "slot.name": "rows",
            "table.include.list": "public.rows",
            **PLAIN,
        }
        with TopicEnds(bench.bootstrap, [topic]) as ends:
            worker.create("capture", config)
            found = measure_rows(worker, "PostgreSQL to a topic, rows of a table", rows, ends.count)
            worker.wait_until(lambda: count_records(bench.bootstrap, topic) >= rows, "the rows are not there")
            first = ends.count()
            server.run(f"INSERT INTO rows SELECT {COLUMNS} FROM generate_series({rows + 1}, {2 * rows}) n")
            title = "PostgreSQL to a topic, changes of the log"
            found |= measure_rows(worker, title, rows, lambda: ends.count() - first)
            worker.wait_until(lambda: count_records(bench.bootstrap, topic) >= 2 * rows, "the changes are not there")
        _check(worker.name, count_records(bench.bootstrap, topic), 2 * rows)
    return found


@_need
def measure_sink(bench: Bench, side: int, server: PostgreSqlServer) -> dict[Row, float]:
    """Upserts by the key, into a table that is there."""
    rows = bench.size.rows
    server.run("CREATE TABLE rows (id int PRIMARY KEY, note text)")
    jars = [find_debezium_jars()] if side else []
    with RunningWorker(side, bench.bootstrap, jars) as worker:
        topic = f"{worker.name}-rows"
        create_topic(bench.bootstrap, topic)
        _fill_with_schema(bench.bootstrap, topic, rows)
        url = f"jdbc:postgresql://{HOST}:{server.port}/{DATABASE}"
        both = {"topics": topic, "insert.mode": "upsert", "delete.enabled": "false", **JSON}
        ours = {
            "connector.class": "JdbcSink",
            "connection.url": url,
            "connection.user": "postgres",
            "pk.mode": "record_key",
            "pk.fields": "id",
            "table.name.format": "rows",
        }
        theirs = {
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
            "connection.url": url,
            "connection.username": "postgres",
            "connection.password": "none",
            "primary.key.mode": "record_key",
            "primary.key.fields": "id",
            "collection.name.format": "rows",
            "batch.size": "3000",
            "consumer.override.max.poll.records": "3000",
        }
        worker.create("sink", {**both, **(theirs if side else ours)})
        # by the highest id, because ids come in their order, and to count rows would keep the server busy
        with server.open_query("SELECT coalesce(max(id), -1) + 1 FROM rows") as count:
            found = measure_rows(worker, "topic to PostgreSQL, upserts", rows, count)
        _check(worker.name, server.query_number("SELECT count(*) FROM rows"), rows)
    return found


@_need
def measure_table(bench: Bench, side: int, server: PostgreSqlServer) -> dict[Row, float]:
    """JdbcSource by the id; the other side is a batch of Spark, from its JDBC source to `format("ottla")`."""
    rows = bench.size.rows
    server.run(f"{TABLE}; INSERT INTO rows SELECT {COLUMNS} FROM generate_series(1, {rows}) n")
    url, title = f"jdbc:postgresql://{HOST}:{server.port}/{DATABASE}", "a table to a topic, beside plain Spark JDBC"
    if side:
        return _measure_spark(bench, url, title)
    with RunningWorker(side, bench.bootstrap) as worker:
        topic = f"{worker.name}-rows"
        create_topic(bench.bootstrap, topic)
        config = {
            "connector.class": "JdbcSource",
            "connection.url": url,
            "connection.user": "postgres",
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": "rows",
            "topic.prefix": f"{worker.name}-",
            **PLAIN,
        }
        with TopicEnds(bench.bootstrap, [topic]) as ends:
            worker.create("table", config)
            found = measure_rows(worker, title, rows, ends.count)
            worker.wait_until(lambda: count_records(bench.bootstrap, topic) >= rows, "the rows are not there")
        _check(worker.name, count_records(bench.bootstrap, topic), rows)
    return found


def _measure_spark(bench: Bench, url: str, title: str) -> dict[Row, float]:
    """The program says when its batch begins, and ends with it."""
    topic, rows = f"spark-{time.monotonic_ns()}", bench.size.rows
    create_topic(bench.bootstrap, topic)
    driver = next(find_debezium_jars().glob("postgresql-*.jar"))
    command = [sys.executable, "-m", "benchmarks.connect.spark_jdbc", str(driver), url, bench.bootstrap, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=build_environment()) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "begins\n":
            raise Mismatch("Spark's JDBC source does not start")
        began, before = time.perf_counter(), read_usage(process.pid).cpu_seconds
        wait_for(lambda: count_records(bench.bootstrap, topic) >= rows, lambda: process.poll() not in (None, 0))
        seconds, cpu_seconds = time.perf_counter() - began, read_usage(process.pid).cpu_seconds - before
        process.terminate()
    _check("Spark", count_records(bench.bootstrap, topic), rows)
    return {
        Row(title, "k rows/s", more_is_better=True): rows / seconds / 1000,
        Row(f"{title}: CPU", "s/M rows", more_is_better=False): cpu_seconds / rows * 1e6,
    }


def _fill_with_schema(bootstrap: str, topic: str, rows: int) -> None:
    fields = [("id", "int32", False)], [("note", "string", True)]
    key_schema, value_schema = (
        json.dumps(
            {
                "type": "struct",
                "optional": False,
                "fields": [{"field": name, "type": kind, "optional": optional} for name, kind, optional in listed],
            }
        )
        for listed in fields
    )
    producer = Producer(build_producer_settings(bootstrap, "1", linger_ms=20))
    for number in range(rows):
        key = f'{{"schema":{key_schema},"payload":{{"id":{number}}}}}'
        value = f'{{"schema":{value_schema},"payload":{{"note":"{FILLER} {number}"}}}}'
        while True:
            try:
                producer.produce(topic, key=key, value=value)
                break
            except BufferError:
                producer.poll(0.05)
    flush(producer)


def _check(name: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise Mismatch(f"{name}: {found} rows have arrived, and there are {wanted}")


WORKLOADS = (
    Workload("postgresql-capture", measure_capture),
    Workload("postgresql-sink", measure_sink),
    Workload("postgresql-table", measure_table),
)
