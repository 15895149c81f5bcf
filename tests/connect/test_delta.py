"""Made-up records in a topic, and the topic in a Delta Lake table: with a broker and Spark, and with kills."""

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from ottla.connect.connectors.datagen.datagen_source import DatagenSource
from ottla.connect.connectors.delta.delta_sink import DeltaLakeSink
from ottla.testing import LocalBroker
from tests.connect.crashing_delta import BATCH, TOPIC, make_configs
from tests.connect.runs import count_records, running, wait_until
from tests.connect.test_kills import Driver
from tests.samples import sample_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_orders(directory: Path) -> list[int]:
    if not DeltaTable.is_deltatable(str(directory / "table")):
        return []
    return sorted(DeltaTable(str(directory / "table")).to_pyarrow_table(columns=["orderid"])["orderid"].to_pylist())


def count_orders(directory: Path) -> int:
    if not DeltaTable.is_deltatable(str(directory / "table")):
        return 0
    return int(DeltaTable(str(directory / "table")).to_pyarrow_dataset().count_rows())


def test_made_up_records_in_a_table(spark: "SparkSession", broker: LocalBroker, tmp_path: Path) -> None:
    source, sink = (
        {name.replace(".", "_"): text for name, text in each.items()} for each in make_configs(tmp_path, 2000)
    )
    with (
        running(spark, broker, DatagenSource, "datagen", **source),
        running(spark, broker, DeltaLakeSink, "delta", **sink) as table,
    ):
        wait_until(lambda: len(read_orders(tmp_path)) >= 2000, lambda: table.status)
    assert read_orders(tmp_path) == list(range(2000))
    row = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()[0]
    assert 10_000 <= row["address"]["zipcode"] < 99_999


@pytest.mark.long
def test_kills_of_the_driver(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    """With all its processes, at random points: the topic and the table have each record once."""
    random = Random(seed)
    kills = sample_size(2, 4)
    count = kills * BATCH * 10
    (tmp_path / "iterations").write_text(str(count))
    driver = Driver(ottla_broker, tmp_path, "tests.connect.crashing_delta")
    try:
        driver.start()
        for number in range(kills):
            wanted = number * BATCH * 10 + random.randrange(1, BATCH * 9)

            def has_come(wanted: int = wanted) -> bool:
                driver.check()
                return count_orders(tmp_path) >= wanted

            wait_until(has_come)
            driver.kill()
            driver.start()
        wait_until(lambda: count_orders(tmp_path) >= count)
    finally:
        driver.kill()
    assert read_orders(tmp_path) == list(range(count))
    assert count_records(ottla_broker, TOPIC) == count
