"""A cluster with an authorizer: its brokers copy from each other, and an ACL counts at all of them."""

from typing import Any

import ottla.testing
from ottla.errors import ErrorCode
from ottla.security.operations import Operation, ResourceType
from ottla.testing.local_cluster import ClusterBroker, wait_until
from tests.raw_client import RawClient
from tests.scenarios.access import ADDRESSES, STANDARD_AUTHORIZER, add, name_clients, rule, take_away
from tests.scenarios.client_calls import make_batch


def connect_as(user: str, broker: ClusterBroker) -> RawClient:
    return RawClient(broker.host, broker.port, source=ADDRESSES[user])


def fetch_code(broker: ClusterBroker) -> int:
    """What alice gets who fetches from this broker: 0, NOT_LEADER_OR_FOLLOWER from followers, or the refusal."""
    with connect_as("alice", broker) as alice:
        return alice.fetch("orders", 0, 0).error_code


def test_a_cluster_with_an_authorizer_replicates_and_follows_changes_of_acls() -> None:
    """The brokers connect as root, a super user. An ACL that is created at one broker counts at the others."""
    settings: dict[str, Any] = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:root"}
    with name_clients(), ottla.testing.cluster(brokers=3, **settings) as cluster:
        cluster.create_topic("orders", partitions=1)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        results = []
        for broker in cluster.brokers:
            with connect_as("root", broker) as root:
                result = root.produce("orders", 0, make_batch(b"v"))
                results.append(result is not None and result.error_code == 0)
            assert fetch_code(broker) == refused
        assert results.count(True) == 1  # the leader has waited for both followers
        allowed = rule("alice", Operation.READ, ResourceType.TOPIC, "orders")
        with connect_as("root", cluster.brokers[0]) as root:
            add(root, allowed)
            for broker in cluster.brokers:
                wait_until(lambda broker=broker: fetch_code(broker) != refused)  # type: ignore[misc]
            take_away(root, allowed)
            for broker in cluster.brokers:
                wait_until(lambda broker=broker: fetch_code(broker) == refused)  # type: ignore[misc]


def test_a_follower_without_the_right_copies_nothing() -> None:
    """CLUSTER_ACTION is checked between brokers too: without it no follower is in sync, with it all are."""
    settings: dict[str, Any] = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:bob"}
    with name_clients(), ottla.testing.cluster(brokers=2, **settings) as cluster:
        first = cluster.brokers[0]
        with connect_as("bob", first) as bob:
            with connect_as("root", first) as root:
                assert root.fetch("orders", 0, 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            add(bob, rule("root", Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster"))
            add(bob, rule("root", Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster"))
            cluster.create_topic("orders", partitions=1)
            codes = set()
            for broker in cluster.brokers:
                with connect_as("bob", broker) as writer:
                    result = writer.produce("orders", 0, make_batch(b"v"))
                    codes.add(result.error_code if result is not None else -1)
            assert 0 in codes  # acks=all: the follower has copied it
