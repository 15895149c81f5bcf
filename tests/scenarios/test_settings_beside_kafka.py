"""Every setting that Apache Kafka describes, as both brokers describe it, before and after changes at every level.

What differs is in the tables of this file, with the reason.
"""

import itertools
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ottla.wire.message import Message
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.kafka_peer import Clients
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.test_admin_beside_kafka import BROKER, DELETE, METRICS, SET, TOPIC, alter, create

GROUP = 32
RESOURCES = ((BROKER, "1"), (BROKER, ""), (TOPIC, "described"), (GROUP, "described"), (METRICS, "described"))

STARTED_DIFFERENTLY = {
    *("advertised.listeners", "broker.id", "connections.max.idle.ms", "controller.listener.names"),
    *("controller.quorum.voters", "listener.security.protocol.map", "listeners", "log.dir", "log.dirs", "node.id"),
    *("offsets.topic.replication.factor", "process.roles", "share.coordinator.state.topic.min.isr"),
    *("share.coordinator.state.topic.replication.factor", "transaction.state.log.min.isr"),
    "transaction.state.log.replication.factor",
}
"""Settings with which the tests start the two brokers differently. Their values and sources are not compared."""
OTHER_DEFAULTS = {
    *("max.connections.per.ip", "queued.max.request.bytes"),  # Ottla limits both; Kafka does not
    *("socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes"),
}
"""Settings whose default is another one than Kafka's on purpose: the reference of settings says so."""
FIXED = {
    *("config.providers", "listener.security.protocol.map", "listeners", "metric.reporters", "principal.builder.class"),
    *("sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.mechanism.inter.broker.protocol", "ssl.cipher.suites"),
    *("ssl.client.auth", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.engine.factory.class"),
    "ssl.protocol",
}
"""Kafka keeps a change of these, which has no effect on a listener that is open. Ottla refuses it: read-only."""

CHANGES = [
    (BROKER, "", {"log.retention.ms": "400000000", "message.max.bytes": "1048590", "compression.type": "gzip"}),
    (BROKER, "1", {"log.retention.ms": "300000000", "log.roll.ms": "900000", "log.flush.interval.ms": "1000"}),
    (BROKER, "1", {"log.cleaner.io.buffer.load.factor": "0.80", "unclean.leader.election.enable": "TRUE"}),
    (TOPIC, "described", {"retention.ms": " 5000 ", "cleanup.policy": "compact, delete", "preallocate": "TRUE"}),
    (TOPIC, "described", {"min.cleanable.dirty.ratio": "0.50", "flush.ms": "9", "internal.segment.bytes": "100000"}),
    (GROUP, "described", {"consumer.session.timeout.ms": " 2500 ", "share.auto.offset.reset": "earliest"}),
    (METRICS, "described", {"interval.ms": "60000", "metrics": "a. , b.", "match": "client_id=x"}),
]

THREADS = ("background.threads", "num.io.threads", "num.network.threads", "num.replica.fetchers", "log.cleaner.threads")
VALUES = [
    *itertools.product(THREADS, ("0", "1", "2", "3", "4", "5", "7", "8", "16", "17", "20", "21")),
    *itertools.product(("log.cleaner.dedupe.buffer.size",), ("-77", "1048576", "1048577")),
    *itertools.product(("log.local.retention.ms",), ("-2", "-1", "0", "604800000", "604800001")),
    *itertools.product(("log.roll.jitter.ms",), ("-1", "0")),
    *itertools.product(("min.insync.replicas",), ("0", "1", "x", None)),
    *itertools.product(("ssl.provider", "ssl.keystore.type", "sasl.kerberos.kinit.cmd", "node.id"), ("PEM", None)),
]


class Described(NamedTuple):
    value: str | None
    source: int
    synonyms: list[tuple[str, str | None, int]]
    kind: int
    is_read_only: bool
    is_sensitive: bool
    has_documentation: bool


def read(client: RawClient, kind: int, name: str) -> dict[str, Described]:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
    (result,) = client.request(request, 4).results
    assert not result.error_code, result
    return {
        each.name: Described(
            each.value,
            each.config_source,
            [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
            each.config_type,
            each.read_only,
            each.is_sensitive,
            bool(each.documentation),
        )
        for each in result.configs
    }


def find_differences(both: Clients) -> Iterator[str]:
    for kind, resource in RESOURCES:
        theirs, ours = (read(client, kind, resource) for client in both)
        for name, described in theirs.items():
            wanted, found = described, ours.get(name)
            if found is not None and name in STARTED_DIFFERENTLY | OTHER_DEFAULTS:
                wanted = wanted._replace(value=found.value, source=found.source, synonyms=found.synonyms)
            if name in FIXED:
                wanted = wanted._replace(is_read_only=True)
            if wanted != found:
                yield f"{name} of {resource!r}:\n  Kafka: {described}\n  Ottla: {found}"


def find_lasting_differences(both: Clients) -> list[str]:
    """Those that remain when Kafka, which describes a change a moment after it has answered it, has had its time."""
    deadline = time.monotonic() + PATIENCE_S
    while differences := list(find_differences(both)):
        if time.monotonic() > deadline:
            break
    return differences


def ask_both(both: Clients, request: Message) -> tuple[int, int]:
    theirs, ours = (client.request(request, 1).responses[0].error_code for client in both)
    return theirs, ours


@pytest.fixture
def both(both_clients: Clients) -> Iterator[Clients]:
    for client in both_clients:
        create(client, "described")
    yield both_clients
    for kind, name, changes in CHANGES:
        ask_both(both_clients, alter(kind, name, *((setting, DELETE, None) for setting in changes)))


def test_both_brokers_describe_the_same(both: Clients) -> None:
    """Values, types, sources, what can be changed, and synonyms in their order."""
    assert not (found := find_lasting_differences(both)), "\n".join(found)
    for kind, name, changes in CHANGES:
        codes = ask_both(both, alter(kind, name, *((setting, SET, text) for setting, text in changes.items())))
        assert codes == (0, 0), changes
    assert not (found := find_lasting_differences(both)), "\n".join(found)


def test_both_brokers_refuse_the_same_changes(both: Clients) -> None:
    """How far a running broker can be changed at a time, for one broker and for all."""
    different = []
    for (setting, text), name in itertools.product(VALUES, ("1", "")):
        change = (setting, DELETE if text is None else SET, text)
        theirs, ours = ask_both(both, alter(BROKER, name, change, validate_only=True))
        if theirs != ours:
            different.append(f"{setting}={text} for {name!r}: Kafka {theirs}, Ottla {ours}")
    assert not different, "\n".join(different)
