"""Apache Kafka's tools for ACLs, users and quotas, over SASL_SSL at a broker with access control."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import ottla.testing
from benchmarks.peers.apache_kafka import run_tool
from ottla.client.client import Client
from ottla.config.properties import format_properties
from ottla.errors import KafkaError
from ottla.testing import LocalBroker

ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"


class Tools:
    """Kafka's tools with the login of the administrator."""

    def __init__(self, broker: LocalBroker, directory: Path) -> None:
        self.broker = broker
        self._file = directory / "admin.properties"
        self._file.write_text(format_properties(broker.java_settings))

    def __call__(self, name: str, *options: str) -> str:
        common = ("--bootstrap-server", self.broker.bootstrap, "--command-config", str(self._file))
        return run_tool(name, *options, *common)


@pytest.fixture(scope="module")
def tools(kafka_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with ottla.testing.broker(security="sasl_ssl", acls=True) as broker:
        yield Tools(broker, tmp_path_factory.mktemp("login"))


def count_partitions(login: dict[str, str]) -> dict[str, int]:
    with closing(Client(login)) as client:
        return client.count_partitions(["orders"])


def test_users_acls_and_quotas(tools: Tools) -> None:
    """kafka-configs creates a user and a quota, kafka-acls gives the user rights and takes them away again."""
    tools.broker.create_topic("orders")
    credential = "SCRAM-SHA-256=[iterations=4096,password=of-alice]"
    tools(CONFIGS, "--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config", credential)
    login = {**tools.broker.client_settings, "sasl.username": "alice", "sasl.password": "of-alice"}
    with pytest.raises(KafkaError):
        count_partitions(login)
    tools(ACLS, "--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "readers")
    assert count_partitions(login) == {"orders": 1}
    shown = tools(ACLS, "--list", "--principal", "User:alice")
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in shown
    assert "resourceType=GROUP, name=readers" in shown
    consumer = ("--consumer", "--topic", "orders", "--group", "readers")
    tools(ACLS, "--remove", "--force", "--allow-principal", "User:alice", *consumer)
    with pytest.raises(KafkaError):
        count_partitions(login)
    quota = ("--entity-type", "users", "--entity-name", "alice")
    tools(CONFIGS, "--alter", *quota, "--add-config", "producer_byte_rate=1048576")
    described = tools(CONFIGS, "--describe", *quota)
    assert "producer_byte_rate=1048576.0" in described
    assert "SCRAM-SHA-256=iterations=4096" in described
