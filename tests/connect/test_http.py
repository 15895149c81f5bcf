"""The HTTP connectors on a broker and Spark, with a server that fails now and then."""

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from ottla.connect.connectors.http.http_sink import HttpSink
from ottla.connect.connectors.http.http_source import HttpSource
from ottla.testing import LocalBroker
from tests.connect.documented import read_documented_config
from tests.connect.http_server import Answer, Request, http_server
from tests.connect.runs import count_records, read_group, read_records, running, wait_until
from tests.spark.topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = 7


def make_settings(name: str, **more: Any) -> dict[str, Any]:
    config = read_documented_config(name)
    found = {key.replace(".", "_"): text for key, text in config.items() if key not in ("name", "connector.class")}
    return {**found, "retry_backoff_ms": 1, **more}


def test_pages_of_a_server_that_fails(spark: "SparkSession", broker: LocalBroker, seed: int) -> None:
    """The documented configuration: each row comes once, also of a page that grows, and after a restart."""
    random = Random(seed)
    rows = {"tickets": [{"id": n} for n in range(40)], "comments": [{"id": n} for n in range(3)]}

    def answer(request: Request) -> Answer:
        if random.random() < 0.2:
            return 503, b"later"
        assert request.headers["Authorization"] == "Bearer token"
        parts = urlsplit(request.path)
        found = rows[parts.path.rpartition("/")[2]]
        at = int((parse_qs(parts.query).get("cursor") or ["0"])[0])
        more = str(at + PAGE) if at + PAGE < len(found) else None
        return 200, json.dumps({"items": found[at : at + PAGE], "next": more}).encode()

    with http_server(answer) as server:
        settings = make_settings(
            "tickets", url=server.url + "/api/${entityName}", bearer_token="token", request_interval_ms=50, tasks_max=2
        )
        for number in range(1, 3):
            with running(spark, broker, HttpSource, "http-pages", **settings) as source:
                for name, found in rows.items():
                    wait_until(
                        lambda name=name, found=found: count_records(broker, f"desk-{name}") >= len(found),  # type: ignore[misc]
                        lambda source=source: source.status,  # type: ignore[misc]
                    )
            for found in rows.values():
                found += [{"id": len(found) + n} for n in range(number * 5)]
    for name, found in rows.items():
        written = [json.loads(each["value"]) for each in read_records(broker, f"desk-{name}")]
        assert Counter(each["id"] for each in written) == Counter(range(len(found) - 10))


def test_records_as_requests(spark: "SparkSession", broker: LocalBroker, seed: int) -> None:
    """The documented configuration: all records arrive, in order, and repetitions can be recognised."""
    random = Random(seed)
    arrived: dict[str, list[int]] = {}

    def answer(request: Request) -> Answer:
        failing = random.random()
        if failing < 0.2:
            return 429, b"later"
        arrived[request.headers["Idempotency-Key"]] = [each["n"] for each in json.loads(request.body)]
        return (500, b"too late") if failing < 0.3 else (200, b"")

    broker.create_topic("orders-out")
    send(broker, "orders-out", [{"value": json.dumps({"n": n}), "partition": 0} for n in range(1000)])
    with http_server(answer) as server:
        settings = make_settings("hook", http_api_url=server.url, topics="orders-out")
        with running(spark, broker, HttpSink, "http-hook", **settings) as sink:
            wait_until(lambda: sum(read_group(broker, "http-hook").values()) == 1000, lambda: sink.status)
    assert [n for each in arrived.values() for n in each] == list(range(1000))
