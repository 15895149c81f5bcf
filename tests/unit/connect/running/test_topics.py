"""The groups of topic.creation.*."""

import pytest

from ottla.client.client import Client, UnknownTopic
from ottla.connect.errors import BadConfig, ConnectError
from ottla.connect.running.topics import TopicGroup, count_or_create, create_topic, read_topic_groups
from ottla.testing import LocalBroker


def test_groups_come_first_and_the_default_fills_in() -> None:
    """As in Kafka Connect: a group that does not say how many partitions has the default's."""
    groups = read_topic_groups(
        {
            "topic.creation.groups": ["compacted"],
            "topic.creation.default.partitions": "5",
            "topic.creation.default.replication.factor": "2",
            "topic.creation.compacted.include": r"state\..*, .*-table",
            "topic.creation.compacted.exclude": "state.old",
            "topic.creation.compacted.cleanup.policy": "compact",
            "topic.creation.compacted.partitions": "1",
        }
    )
    chosen = {name: next(group for group in groups if group.has(name)) for name in ("state.a", "state.old", "x-table")}
    assert chosen["state.a"] is chosen["x-table"]
    assert (chosen["state.a"].partitions, chosen["state.a"].replication_factor) == (1, 2)
    assert chosen["state.a"].settings == {"cleanup.policy": "compact"}
    assert (chosen["state.old"].partitions, chosen["state.old"].settings) == (5, {})


def test_without_settings_the_broker_decides() -> None:
    assert read_topic_groups({}) == [TopicGroup([".*"], [], -1, -1, {})]
    with pytest.raises(BadConfig, match="partitions"):
        read_topic_groups({"topic.creation.default.partitions": "many"})


def test_a_topic_is_created_only_if_a_group_has_it(ottla_broker: LocalBroker) -> None:
    """Without groups, as with topic.creation.enable=false, the topic has to be there."""
    client = Client({"bootstrap.servers": ottla_broker.bootstrap})
    assert count_or_create(client, "made", [TopicGroup(partitions=3)]) == 3
    assert count_or_create(client, "made", []) == 3
    with pytest.raises(UnknownTopic):
        count_or_create(client, "absent", [])
    client.close()


def test_an_error_names_the_setting_that_chooses_the_replicas(ottla_broker: LocalBroker) -> None:
    """Kafka Connect's default of three replicas for dead letters is too many for a single broker."""
    client = Client({"bootstrap.servers": ottla_broker.bootstrap})
    with pytest.raises(ConnectError, match=r"cannot create topic 'letters': .*1 is registered \(letters\.factor=3\)"):
        create_topic(client, "letters", TopicGroup(partitions=1, replication_factor=3), "letters.factor")
    client.close()
