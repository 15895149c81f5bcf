"""Records of a topic as Parquet objects of a bucket. Maven Central has no sink of Kafka Connect for that, so Ottla is
alone. The server is moto's, in a process of its own."""

import contextlib
import io
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.connect.measuring import Bench, Workload, measure_rows
from benchmarks.connect.workers import RunningWorker, wait_for
from benchmarks.loads.topics import Mismatch
from benchmarks.peers.broker_process import HOST
from benchmarks.report import Row
from benchmarks.streams.topics import fill_input
from ottla.cli.ports import pick_port

BUCKET, REGION = "rows", "eu-west-1"
ACCESS = {"aws.access.key.id": "someone", "aws.secret.access.key": "hush-hush"}
FLUSH_ROWS = 50_000


@contextmanager
def run_server() -> Iterator[str]:
    port = pick_port()
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    address = f"http://{HOST}:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: _answers(address), lambda: process.poll() is not None)
            yield address
        finally:
            process.kill()


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=10):
        return True
    return False


def measure_parquet(bench: Bench, side: int) -> dict[Row, float]:
    """Whole objects only: the rows are a multiple of an object's."""
    if side:
        return {}
    import boto3
    import pyarrow.parquet as pq

    rows = max(bench.size.rows // FLUSH_ROWS, 6) * FLUSH_ROWS
    with run_server() as address, RunningWorker(side, bench.bootstrap) as worker:
        keys = {"aws_access_key_id": "someone", "aws_secret_access_key": "hush-hush"}
        client = boto3.session.Session().client("s3", endpoint_url=address, region_name=REGION, **keys)
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        topic = f"{worker.name}-rows"
        fill_input(bench.bootstrap, topic, rows, 1_000, 1)
        config = {
            "connector.class": "S3Sink",
            "topics": topic,
            "s3.bucket.name": BUCKET,
            "s3.region": REGION,
            "store.url": address,
            "format.class": "ParquetFormat",
            "flush.size": str(FLUSH_ROWS),
            **ACCESS,
        }
        worker.create("archive", config)

        def list_objects() -> list[str]:
            listed = client.list_objects_v2(Bucket=BUCKET, Prefix="topics/").get("Contents", ())
            return [each["Key"] for each in listed if each["Key"].endswith(".parquet")]

        found = measure_rows(worker, "topic to S3, Parquet", rows, lambda: len(list_objects()) * FLUSH_ROWS)
        written = 0
        for key in list_objects():
            data = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            written += pq.read_metadata(io.BytesIO(data)).num_rows
        if written != rows:
            raise Mismatch(f"{worker.name}: {written} rows are in the bucket, and {rows} in the topic")
    return found


WORKLOADS = (Workload("s3-parquet", measure_parquet),)
