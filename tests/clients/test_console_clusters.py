"""The console against Ottla and against Apache Kafka: the same pages and changes, with groups of real clients."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from starlette.types import ASGIApp

from ottla.console.app import make_app
from ottla.console.console import Console, Options
from ottla.console.facts.groups import describe_group
from ottla.console.guarding import LOOPBACK_NAMES
from ottla.console.sampling import take_sample
from tests.kafka_peer import Addresses
from tests.patience import PATIENCE_S
from tests.unit.console.asgi import ask
from tests.unit.console.conftest import patient


@pytest.fixture(params=["Apache Kafka", "Ottla"])
def console(request: pytest.FixtureRequest, both_addresses: Addresses) -> Iterator[Console]:
    host, port = both_addresses[request.param == "Ottla"]
    made = Console(Options(patient(f"{host}:{port}")), lambda: time.time_ns() // 1_000_000, time.monotonic)
    yield made
    made.close()


def join(console: Console, group: str, topic: str, protocol: str) -> Consumer:
    """A member of a group that has an assignment and has committed what it has read."""
    settings = {"group.protocol": protocol, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": console.address, "group.id": group, **settings})
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while (message := consumer.poll(0.2)) is None or message.error():
        assert time.monotonic() < deadline
    consumer.commit(message=message, asynchronous=False)
    return consumer


def test_the_same_on_every_cluster(console: Console) -> None:
    app: ASGIApp = make_app(console, LOOPBACK_NAMES, None)
    assert (
        ask(app, "/topics", {"name": "everywhere", "partitions": "2", "settings": "retention.ms=7200000"}).status == 303
    )
    for number in range(4):
        form = {"key": f"k{number}", "value": f'{{"n": {number}}}', "codec": "lz4", "headers": "h=1", "partition": "0"}
        assert ask(app, "/topics/everywhere/produce", form).status == 303
    members = {protocol: join(console, protocol, "everywhere", protocol) for protocol in ("classic", "consumer")}
    try:
        console.forget()
        take_sample(console)
        groups = console.groups.get()
        for protocol in members:
            assert groups[protocol].kind == protocol
            with console.clients.borrow() as client:
                details = describe_group(client, console.metadata.get(), groups[protocol])
            (member,) = details.members
            assert sorted(where.partition for where in member.partitions) == [0, 1]
            page = ask(app, f"/groups/{protocol}").text
            assert "<dt>Lag</dt><dd>3</dd>" in page
            refused = ask(app, f"/groups/{protocol}", {"action": "reset", "target": "earliest"})
            assert refused.status == 409  # it has members
    finally:
        for consumer in members.values():
            consumer.close()
    assert ask(app, "/groups/consumer", {"action": "reset", "target": "latest"}).status == 303
    for path in ("/", "/brokers/1", "/topics", "/topics/everywhere", "/topics/everywhere/records", "/groups"):
        assert ask(app, path).status == 200, path
    for path in ("/topics/everywhere/settings", "/topics/everywhere/groups", "/transactions", "/access", "/apps"):
        assert ask(app, path).status == 200, path
    assert "7200000" in ask(app, "/topics/everywhere/settings").text
    assert ask(app, "/topics/everywhere/records/export?as=csv&q=k3&in=key").text.count("\n") == 2
    assert ask(app, "/topics/everywhere", {"action": "clone", "copy": "clone", "records": "1"}).status == 303
    assert (
        ask(app, "/topics/clone", {"action": "set", "name": "cleanup.policy", "value": "compact,delete"}).status == 303
    )
    assert ask(app, "/topics/clone", {"action": "partitions", "count": "3"}).status == 303
    for name in ("everywhere", "clone"):
        assert ask(app, f"/topics/{name}", {"action": "purge", "confirm": name}).status == 303
        assert ask(app, f"/topics/{name}", {"action": "delete", "confirm": name}).status == 303
