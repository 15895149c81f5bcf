"""The HTTP connectors die at every step of their protocol, without Spark: a few of the steps in `make test`, all in a
full run."""

import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from ottla.connect.connectors.http.http_sink import HttpSink
from ottla.connect.connectors.http.http_source import HttpSource
from ottla.connect.connectors.http.server import Server
from ottla.connect.running import sink_tasks, writing
from ottla.testing import LocalBroker
from tests.connect.http_server import Answer, Request, http_server
from tests.connect.local_runs import count_steps, run_until_death
from tests.connect.runs import read_group, read_records
from tests.samples import choose_sample
from tests.spark.topics import send

JSON: Final = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
SOURCE_STEPS: Final[Sequence[tuple[Any, str]]] = (
    (Server, "ask"),
    (writing.TransactionWriter, "write"),
    (writing.TransactionWriter, "write_offsets"),
    (writing, "end_transaction"),
)
SINK_STEPS: Final[Sequence[tuple[Any, str]]] = (
    (Server, "ask"),
    (sink_tasks, "commit_offsets_in_transaction"),
    (writing, "end_transaction"),
)
SAMPLE: Final = 3
ROWS, PAGE = 5, 2


def answer_pages(request: Request) -> Answer:
    at = int((parse_qs(urlsplit(request.path).query).get("cursor") or ["0"])[0])
    following = str(at + PAGE) if at + PAGE < ROWS else None
    return 200, json.dumps({"items": list(range(ROWS))[at : at + PAGE], "next": following}).encode()


def test_deaths_of_the_source(broker: LocalBroker) -> None:
    """Each row of the server is written once, whenever the source dies."""
    with http_server(answer_pages) as server:

        def run(name: str, deadly: int | None) -> int:
            config = {
                "name": name,
                "url": server.url,
                "topic.name.pattern": name,
                "http.request.parameters": "cursor=${offset}",
                "http.offset.mode": "CURSOR_PAGINATION",
                "http.response.data.json.pointer": "/items",
                "http.next.page.json.pointer": "/next",
                **JSON,
            }
            with count_steps(SOURCE_STEPS, deadly) as steps:
                run_until_death(broker, HttpSource, config)
            run_until_death(broker, HttpSource, config)
            assert [json.loads(each["value"]) for each in read_records(broker, name)] == list(range(ROWS)), deadly
            return steps.count

        count = run("http-source-lives", None)
        assert count == 2 * (3 + 3 + 1 + 1)
        for deadly in choose_sample(range(count), SAMPLE):
            run(f"http-source-dies-{deadly}", deadly)


def test_deaths_of_the_sink(broker: LocalBroker) -> None:
    """Each record arrives, in order. What arrives twice has the idempotency key that it had before, and is the same."""
    arrived: list[tuple[str, bytes]] = []

    def answer(request: Request) -> Answer:
        arrived.append((request.headers["Idempotency-Key"], request.body))
        return 200, b""

    with http_server(answer) as server:

        def run(name: str, deadly: int | None) -> int:
            broker.create_topic(name, partitions=1)
            send(broker, name, [{"value": json.dumps(n)} for n in range(ROWS)])
            config = {"name": name, "topics": name, "http.api.url": server.url, "batch.max.size": str(PAGE), **JSON}
            arrived.clear()
            with count_steps(SINK_STEPS, deadly) as steps:
                run_until_death(broker, HttpSink, config)
            run_until_death(broker, HttpSink, config)
            assert all(dict(arrived)[key] == body for key, body in arrived), deadly
            expected = [b"0,1", b"2,3", b"4"]
            assert list(dict(arrived).values()) == expected, deadly
            assert len(arrived) <= 2 * len(expected), deadly
            assert list(read_group(broker, name).values()) == [ROWS]
            return steps.count

        count = run("http-sink-lives", None)
        assert (len(arrived), count) == (3, 2 * (3 + 1 + 1))
        for deadly in choose_sample(range(count), SAMPLE):
            run(f"http-sink-dies-{deadly}", deadly)
