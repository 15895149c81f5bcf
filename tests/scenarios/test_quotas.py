"""Quotas over the wire: set, described and kept; beside Apache Kafka's answers; with Apache Kafka's tools."""

import time
from collections.abc import Iterator

import pytest

from ottla import testing
from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.wire.message import Message
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from ottla.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from tests.kafka_peer import Clients
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.answer_comparison import find_differences
from tests.scenarios.client_calls import append, connect
from tests.scenarios.quota_requests import ANY, DEFAULT, EXACT, alter, build_entry, describe, list_quotas, set_quota
from tests.scenarios.test_admin_tools import CONFIGS, run_kafka_tool
from tests.scenarios.test_metrics import metrics


def test_quotas_are_kept_and_removed() -> None:
    # A restart keeps them. A quota that is removed leaves nothing.
    with testing.broker() as broker:
        with connect(broker) as client:
            set_quota(client, {"user": "alice", "client-id": None}, producer_byte_rate=1024.0, request_percentage=50.5)
            set_quota(client, {"ip": "10.0.0.1"}, connection_creation_rate=5.0)
            (entry,) = client.request(alter({"user": "bob"}, validate_only=True, producer_byte_rate=1.0), 1).entries
            assert entry.error_code == 0
        broker.restart()
        with connect(broker) as client:
            alice, address = (("client-id", None), ("user", "alice")), (("ip", "10.0.0.1"),)
            expected = {"producer_byte_rate": 1024.0, "request_percentage": 50.5}
            assert list_quotas(client) == {alice: expected, address: {"connection_creation_rate": 5.0}}
            set_quota(client, {"user": "alice", "client-id": None}, producer_byte_rate=None, request_percentage=None)
            assert list_quotas(client) == {address: {"connection_creation_rate": 5.0}}


def test_one_refused_entity_does_not_stop_the_others(client: RawClient) -> None:
    entries = [
        build_entry({"user": "first"}, producer_byte_rate=-1.0),
        build_entry({"user": "second"}, producer_byte_rate=7.0),
        build_entry({"user": "third"}, producer_byte_rate=1.0),
        build_entry({"user": "third"}, producer_byte_rate=2.0),
    ]
    answer = client.request(AlterClientQuotasRequest(entries=entries), 1)
    codes = {entry.entity[0].entity_name: entry.error_code for entry in answer.entries}
    assert codes == {"first": ErrorCode.INVALID_REQUEST, "second": 0, "third": ErrorCode.INVALID_REQUEST}
    assert list_quotas(client) == {(("user", "second"),): {"producer_byte_rate": 7.0}}
    set_quota(client, {"user": "second"}, producer_byte_rate=None)


def test_an_address_above_its_rate_is_refused() -> None:
    # With one connection a second, the first ten are admitted, and further ones are closed.
    with testing.broker() as broker:
        with connect(broker) as client:
            set_quota(client, {"ip": "127.0.0.1"}, connection_creation_rate=1.0)
            opened = []
            while True:
                other = RawClient(broker.host, broker.port)
                try:
                    other.request(describe(), 1)
                except ConnectionError:
                    other.close()
                    break
                opened.append(other)
                assert len(opened) < 2000, "no connection is refused"
            set_quota(client, {"ip": "127.0.0.1"}, connection_creation_rate=None)
            for each in opened:
                each.close()
        with connect(broker) as client:
            assert list_quotas(client) == {}


def test_metrics_of_a_client_above_its_quota() -> None:
    with testing.broker(metrics_port=0) as broker:
        broker.create_topic("orders")
        with connect(broker) as client:
            set_quota(client, {"client-id": "raw"}, producer_byte_rate=10_000.0)
            append(client, "orders", bytes(100_100))
            found = metrics(broker)
            assert found.value("kafka_server_produce_byte_rate", client_id="raw") > 0
            assert found.value("kafka_server_produce_throttle_time", client_id="raw") >= 1
            assert found.value("ottla_quota_limit", quota="producer_byte_rate", client_id="raw") == 10_000
            assert found.value("ottla_quota_throttled_total", quota="producer_byte_rate", client_id="raw") == 1
            assert found.value("ottla_quota_clients", quota="producer_byte_rate") == 1


QUESTIONS: dict[str, Message] = {
    "set": alter({"user": "alice"}, producer_byte_rate=1024.0, consumer_byte_rate=2048.0),
    "set for a client of a user": alter({"user": "alice", "client-id": "app"}, request_percentage=12.5),
    "set for defaults": alter({"user": None, "client-id": None}, controller_mutation_rate=3.5),
    "set for an address": alter({"ip": "10.0.0.1"}, connection_creation_rate=10.0),
    "set for all addresses": alter({"ip": None}, connection_creation_rate=20.0),
    "everything": describe(),
    "strictly nothing": describe(strict=True),
    "one user": describe(("user", EXACT, "alice")),
    "one user, strictly": describe(("user", EXACT, "alice"), strict=True),
    "the default user": describe(("user", DEFAULT, None)),
    "any user with any client": describe(("user", ANY, None), ("client-id", ANY, None), strict=True),
    "addresses": describe(("ip", ANY, None)),
    "an unknown user": describe(("user", EXACT, "nobody")),
    "two filters of one type": describe(("user", EXACT, "a"), ("user", DEFAULT, None)),
    "an empty type": describe(("", EXACT, "a")),
    "an unknown type": describe(("group", EXACT, "a")),
    "an unknown match": describe(("user", 7, None)),
    "exactly nothing": describe(("user", EXACT, None)),
    "a default with a name": describe(("user", DEFAULT, "a")),
    "any with a name": describe(("user", ANY, "a")),
    "an address and a user": describe(("ip", ANY, None), ("user", ANY, None)),
    "no entity": alter({}, producer_byte_rate=1.0),
    "an empty name": alter({"user": ""}, producer_byte_rate=1.0),
    "an unknown entity": alter({"group": "g"}, producer_byte_rate=1.0),
    "an address with a user": alter({"ip": "10.0.0.1", "user": "a"}, connection_creation_rate=1.0),
    "an unknown quota": alter({"user": "a"}, bytes=1.0),
    "a quota of addresses": alter({"user": "a"}, connection_creation_rate=1.0),
    "a quota of users": alter({"ip": "10.0.0.1"}, producer_byte_rate=1.0),
    "zero": alter({"user": "a"}, producer_byte_rate=0.0),
    "a fraction": alter({"user": "a"}, producer_byte_rate=1.5),
    "too large": alter({"ip": "10.0.0.1"}, connection_creation_rate=2.0**31),
    "not an address": alter({"ip": "not an address"}, connection_creation_rate=1.0),
    "remove what is not there": alter({"user": "a"}, producer_byte_rate=None, nonsense=None),
    "only checked": alter({"user": "b"}, validate_only=True, producer_byte_rate=1.0),
    "remove": alter({"user": "alice"}, producer_byte_rate=None),
    "everything at the end": describe(),
    "tidy 1": alter({"user": "alice"}, consumer_byte_rate=None),
    "tidy 2": alter({"user": "alice", "client-id": "app"}, request_percentage=None),
    "tidy 3": alter({"user": None, "client-id": None}, controller_mutation_rate=None),
    "tidy 4": alter({"ip": "10.0.0.1"}, connection_creation_rate=None),
    "tidy 5": alter({"ip": None}, connection_creation_rate=None),
}


def test_both_brokers_answer_the_same(both_clients: Clients) -> None:
    """The same requests one after the other, in both versions: each answer is that of Apache Kafka.

    Apache Kafka acknowledges a change before every part of it has heard of it, so a description is asked for again
    until both brokers answer the same.
    """
    for client in both_clients:  # others share the brokers, and may have left quotas
        for names, values in list_quotas(client).items():
            set_quota(client, dict(names), **dict.fromkeys(values))
        while list_quotas(client):
            pass
    differences = {}
    for version in (0, 1):
        for name, question in QUESTIONS.items():
            deadline = time.monotonic() + PATIENCE_S
            while found := find_differences(*(client.request(question, version) for client in both_clients)):
                if not isinstance(question, DescribeClientQuotasRequest) or time.monotonic() > deadline:
                    differences[name, version] = found
                    break
    assert differences == {}


@pytest.fixture(scope="module")
def operated(kafka_tools: None) -> Iterator[LocalBroker]:
    with testing.broker() as broker:
        yield broker


def test_kafka_configs_sets_and_shows_quotas(operated: LocalBroker) -> None:
    """An operator's commands for a user, a client id, a default and an address, and what they print."""
    for who, quota in (
        (("--user", "alice", "--client", "app"), "producer_byte_rate=1024,consumer_byte_rate=2048"),
        (("--client", "app"), "request_percentage=20"),
        (("--user-defaults", "--client-defaults"), "controller_mutation_rate=5"),
        (("--ip", "10.0.0.1"), "connection_creation_rate=7"),
    ):
        run_kafka_tool(operated, CONFIGS, "--alter", *who, "--add-config", quota)
    shown = run_kafka_tool(operated, CONFIGS, "--describe", "--entity-type", "users", "--entity-type", "clients")
    rates = "consumer_byte_rate=2048.0, producer_byte_rate=1024.0"
    assert f"Quota configs for user-principal 'alice', client-id 'app' are {rates}" in shown
    assert "the default user-principal, the default client-id are controller_mutation_rate=5.0" in shown
    shown = run_kafka_tool(operated, CONFIGS, "--describe", "--ip", "10.0.0.1")
    assert "Quota configs for ip '10.0.0.1' are connection_creation_rate=7.0" in shown
    run_kafka_tool(operated, CONFIGS, "--alter", "--client", "app", "--delete-config", "request_percentage")
    with connect(operated) as client:
        assert (("client-id", "app"),) not in list_quotas(client)
