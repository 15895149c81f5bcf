"""Data sources of PySpark as connectors, without a session of Spark."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from ottla.connect.connectors.spark.spark_sink import SparkSink
from ottla.connect.connectors.spark.spark_source import SparkSource
from ottla.connect.errors import BadConfig
from ottla.connect.running import writing
from ottla.connect.settings.parsing import parse
from ottla.testing import LocalBroker
from tests.connect.data_sources import make_row
from tests.connect.documented import read_documented_config
from tests.connect.local_runs import count_steps, run_locally, run_until_death
from tests.connect.runs import read_records
from tests.samples import choose_sample
from tests.spark.topics import send

HOME: Final = "tests.connect.data_sources"
STEPS: Final = (
    (writing.TransactionWriter, "write"),
    (writing.TransactionWriter, "write_offsets"),
    (writing, "end_transaction"),
)
SAMPLE: Final = 2


def make_config(name: str, source: str, **more: str) -> dict[str, str]:
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    given = {"name": name, "data.source": source, "value.converter": json_converter}
    return {**given, "value.converter.schemas.enable": "false", **{k.replace("_", "."): v for k, v in more.items()}}


def make_source_config(name: str, kind: str, upto: Path) -> dict[str, str]:
    options = {"topic": name, "poll_interval_ms": "600000", "data_source_option_upto": str(upto)}
    return make_config(name, f"{HOME}:{kind}", **options)


def expect(count: int) -> list[dict[str, Any]]:
    rows = map(make_row, range(count))
    return [{"n": n, "pair": {"half": half, "text": text}} for n, (half, text) in rows]


@pytest.mark.parametrize("kind", ["Numbers", "SimpleNumbers"])
def test_deaths_of_a_source(broker: LocalBroker, tmp_path: Path, kind: str) -> None:
    """Each row is written once, in order, whenever the source dies, and rows that come later follow."""
    upto = tmp_path / "upto"

    def run(name: str, deadly: int | None) -> int:
        config = make_source_config(name, kind, upto)
        upto.write_text("5")
        with count_steps(STEPS, deadly) as steps:
            run_until_death(broker, SparkSource, config)
        upto.write_text("8")
        assert run_locally(broker, SparkSource, config) is None
        assert [json.loads(each["value"]) for each in read_records(broker, name)] == expect(8)
        return steps.count

    count = run(f"all-{kind}", None)
    for deadly in choose_sample(range(count), SAMPLE, kind):
        run(f"{kind}-{deadly}", deadly)


def test_what_is_no_stream_is_read_once(broker: LocalBroker, tmp_path: Path) -> None:
    upto = tmp_path / "upto"
    upto.write_text("3")
    config = {**read_documented_config("weather"), **make_source_config("weather", "AllNumbers", upto)}
    for _ in range(2):
        assert run_locally(broker, SparkSource, config) is None
    assert [json.loads(each["value"]) for each in read_records(broker, "weather")] == expect(3)


def test_a_sink(broker: LocalBroker, tmp_path: Path) -> None:
    """Rows with nested fields; tombstones are left out."""
    broker.create_topic("to-a-data-source", partitions=1)
    rows = [{"a": n, "b": {"c": f"{n}"}} for n in range(3)]
    send(broker, "to-a-data-source", [{"value": json.dumps(each)} for each in rows] + [{"key": "k", "value": None}])
    options = {"topics": "to-a-data-source", "data_source_option_path": str(tmp_path / "lines")}
    assert run_locally(broker, SparkSink, make_config("lines", f"{HOME}:Lines", **options)) is None
    assert [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()] == rows


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("no.such.module:Source", "cannot be imported: No module named 'no'"),
        (f"{HOME}:make_row", "is no data source of PySpark"),
        (HOME, "is no data source of PySpark"),
    ],
)
def test_what_is_no_data_source_is_refused(source: str, message: str) -> None:
    with pytest.raises(BadConfig, match=f"^data.source: data.source={source} {message}"):
        parse(SparkSource.settings, make_config("refused", source, topic="t"))
