"""An S3 server for tests: moto's, in a thread of the test process, on a free port."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

REGION = "eu-west-1"
ACCESS = {"aws.access.key.id": "someone", "aws.secret.access.key": "hush-hush"}


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server without buckets. Servers of one process share what they store: only one may run."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    try:
        with urlopen(Request(f"{address}/moto-api/reset", method="POST")) as answer:
            assert answer.status == 200
        yield address
    finally:
        server.stop()


@functools.cache
def connect_to(address: str) -> Any:
    """boto3's client, for what a test looks at itself."""
    import boto3

    keys = {"aws_access_key_id": "someone", "aws_secret_access_key": "hush-hush"}
    return boto3.session.Session().client("s3", endpoint_url=address, region_name=REGION, **keys)


def make_bucket(address: str, name: str) -> None:
    connect_to(address).create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})


def read_objects(address: str, bucket: str, prefix: str = "") -> dict[str, bytes]:
    """What is in a bucket, without the ledgers of sinks."""
    client = connect_to(address)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [each["Key"] for page in pages for each in page.get("Contents", ()) if "/." not in each["Key"]]
    return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}
