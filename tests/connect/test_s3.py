"""The S3 sink and source on a broker and Spark, with the configurations that the documentation shows."""

import io
import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from ottla.connect.connectors.s3.s3_sink import S3Sink
from ottla.connect.connectors.s3.s3_source import S3Source
from ottla.testing import LocalBroker
from tests.connect.documented import read_documented_config
from tests.connect.runs import count_records, read_records, running, wait_until
from tests.s3_server import ACCESS, make_bucket, read_objects, s3_server
from tests.spark.topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_records_become_objects_once(spark: "SparkSession", ottla_broker: LocalBroker) -> None:
    """All records of two partitions, over a restart; objects are named after the first offset and the hour."""
    broker = ottla_broker  # of its own: other tests have a topic of this name too
    config = {**read_documented_config("archive"), **ACCESS, "flush.size": "20", "rotate.schedule.interval.ms": "0"}
    config["value.converter"] = "org.apache.kafka.connect.json.JsonConverter"
    config["value.converter.schemas.enable"] = "false"
    broker.create_topic("orders", partitions=2)
    with s3_server() as address:
        make_bucket(address, "archive")
        restore = {**read_documented_config("restore"), **ACCESS, "value.converter.schemas.enable": "false"}
        restore["value.converter"] = config["value.converter"]
        settings, more = (
            {key.replace(".", "_"): text for key, text in each.items() if key not in ("name", "connector.class")}
            for each in (config, restore)
        )

        def read() -> list[int]:
            found = read_objects(address, "archive").values()
            return sorted(row["n"] for data in found for row in pq.read_table(io.BytesIO(data)).to_pylist())

        for first in (0, 50):
            rows = [{"value": json.dumps({"n": n}), "partition": n % 2} for n in range(first, first + 50)]
            send(broker, "orders", rows)
            with running(spark, broker, S3Sink, "archive", store_url=address, **settings) as sink:
                wait_until(lambda first=first: len(read()) >= first + 50, lambda sink=sink: sink.status)  # type: ignore[misc]
        assert read() == list(range(100))
        with running(spark, broker, S3Source, "restore", store_url=address, **more) as source:
            wait_until(lambda: count_records(broker, "restored") >= 100, lambda: source.status)
        names = list(read_objects(address, "archive"))
    assert all(name.startswith("topics/orders/year=") for name in names)
    assert {name.rpartition("/")[2] for name in names} >= {
        f"orders+{number}+0000000000.snappy.parquet" for number in (0, 1)
    }
    restored = [json.loads(each["value"])["n"] for each in read_records(broker, "restored")]
    assert sorted(restored) == list(range(100))
