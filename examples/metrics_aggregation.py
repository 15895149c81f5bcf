"""Metrics aggregation: computes mean and peak per machine and minute from the measurements of many machines.

    python examples/metrics_aggregation.py [--bootstrap HOST:PORT]

Machines send a measurement every ten seconds; some arrive late. A query keeps the mean and the peak of each minute up
to date in a compacted topic, from which a dashboard can read them. In mode `update` it writes only the minutes that
have changed.
"""

import json
from collections import defaultdict
from datetime import datetime, timedelta
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from stage import COMPACTED, create_topics, run, send, stream, table

import ottla.spark

MEASUREMENTS, MINUTES = "metrics.measurements", "metrics.minutes"
NINE = datetime.fromisoformat("2026-01-05T09:00:00Z")
ALARM = 85


class Measurement(NamedTuple):
    at: datetime
    machine: str
    load: int


class Minute(NamedTuple):
    """The figures of a machine in one minute."""

    measured: int
    total: int
    peak: int

    @property
    def mean(self) -> float:
        return self.total / self.measured


def main(spark: SparkSession, bootstrap: str) -> None:
    create_topics(bootstrap, MEASUREMENTS)
    create_topics(bootstrap, MINUTES, settings=COMPACTED)
    measurements = make_measurements()
    half = len(measurements) // 2
    with TemporaryDirectory() as checkpoint:
        for part in (
            measurements[:half],
            measurements[half:],
        ):  # the query stops in between and continues from its checkpoint
            send(bootstrap, MEASUREMENTS, ((each.machine, to_json(each)) for each in part))
            query = ottla.spark.write_stream(
                sum_up_minutes(stream(spark, bootstrap, MEASUREMENTS)),
                MINUTES,
                mode="update",
                checkpoint=checkpoint,
                options={"kafka.bootstrap.servers": bootstrap},
                trigger={"availableNow": True},
            )
            query.awaitTermination()

    minutes = read_newest_minutes(table(spark, bootstrap, MINUTES))
    assert minutes == expected_minutes(measurements), "the minutes differ from the expected ones"
    print(f"{len(measurements)} measurements became {len(minutes)} minutes. Above {ALARM} % on average:")
    for (machine, minute), figures in sorted(minutes.items()):
        if figures.mean > ALARM:
            print(f"  {machine} at {minute}: {figures.mean:.0f} % on average, {figures.peak} % at most")


def sum_up_minutes(measurements: DataFrame) -> DataFrame:
    parsed = measurements.select(
        f.from_json(f.col("value").cast("string"), "at TIMESTAMP, machine STRING, load INT").alias("measured")
    ).select("measured.*")
    figures = (
        parsed.withWatermark("at", "5 minutes")
        .groupBy(f.window("at", "1 minute"), "machine")
        .agg(f.count("load").alias("measured"), f.sum("load").alias("total"), f.max("load").alias("peak"))
    )
    key = f.concat_ws(" ", "machine", f.date_format("window.start", "HH:mm"))
    return figures.select(key.alias("key"), f.to_json(f.struct("measured", "total", "peak")).alias("value"))


def read_newest_minutes(frame: DataFrame) -> dict[tuple[str, str], Minute]:
    """The newest record of each key: the one with the highest offset, because a key is always in the same partition."""
    newest = frame.groupBy("key").agg(f.max_by("value", "offset").alias("value"))
    rows = newest.selectExpr("split(string(key), ' ') AS key", "string(value) AS value").collect()
    return {tuple(row.key): Minute(**json.loads(row.value)) for row in rows}


def make_measurements() -> list[Measurement]:
    """Measurements of ten minutes, in the order of their arrival."""
    random = Random(2)
    sent = []
    for machine in range(8):
        usual = random.randrange(10, 90)
        for second in range(0, 600, 10):
            delay = random.randrange(120) if random.random() < 0.1 else 0
            load = min(max(usual + random.randrange(-15, 16), 0), 100)
            sent.append((second + delay, Measurement(NINE + timedelta(seconds=second), f"machine-{machine}", load)))
    return [measurement for _, measurement in sorted(sent)]


def to_json(measurement: Measurement) -> str:
    return json.dumps({"at": measurement.at.isoformat(), "machine": measurement.machine, "load": measurement.load})


def expected_minutes(measurements: list[Measurement]) -> dict[tuple[str, str], Minute]:
    loads = defaultdict(list)
    for at, machine, load in measurements:
        loads[machine, f"{at:%H:%M}"].append(load)
    return {place: Minute(len(each), sum(each), max(each)) for place, each in loads.items()}


if __name__ == "__main__":
    run(main, __doc__)
