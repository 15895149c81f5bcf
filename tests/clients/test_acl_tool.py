"""Apache Kafka's kafka-acls against a broker with an authorizer."""

from collections.abc import Iterator

import pytest

from benchmarks.peers.apache_kafka import run_tool
from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from tests.scenarios.access import connect_as, guarded_broker

TOOL = "org.apache.kafka.tools.AclCommand"


@pytest.fixture(scope="module")
def guarded(kafka_tools: None) -> Iterator[LocalBroker]:
    with guarded_broker() as broker:
        yield broker


def test_kafka_acls_adds_lists_and_removes(guarded: LocalBroker) -> None:
    """A consumer's ACLs, one that denies, and one with a prefix: they take effect, are listed, and are removed."""
    server = ("--bootstrap-server", guarded.bootstrap)
    guarded.create_topic("orders")
    run_tool(
        TOOL, *server, "--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "shop"
    )
    with connect_as("alice", guarded) as alice:
        assert alice.fetch("orders", 0, 0).error_code == 0
        run_tool(
            TOOL,
            *server,
            "--add",
            "--deny-principal",
            "User:alice",
            "--deny-host",
            "127.0.0.2",
            "--operation",
            "Read",
            "--topic",
            "ord",
            "--resource-pattern-type",
            "prefixed",
        )
        assert alice.fetch("orders", 0, 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        listed = run_tool(TOOL, *server, "--list", "--topic", "orders", "--resource-pattern-type", "match")
        assert "(principal=User:alice, host=127.0.0.2, operation=READ, permissionType=DENY)" in listed
        assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in listed
        assert "patternType=PREFIXED" in listed
        run_tool(TOOL, *server, "--remove", "--force", "--topic", "ord", "--resource-pattern-type", "prefixed")
        assert alice.fetch("orders", 0, 0).error_code == 0
    assert "orders" in run_tool(TOOL, *server, "--list", "--principal", "User:alice")
