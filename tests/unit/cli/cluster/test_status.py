"""What the status of a cluster says first, and how errors of many partitions are said in one line."""

import pytest

from ottla.cli.cluster.overview import BrokerState, Overview, PartitionState, join_first
from ottla.cli.cluster.status import print_summary, sort_by_trouble
from ottla.topic_partition import TopicPartition


def test_the_worst_comes_first_and_topics_of_users_before_internal_ones() -> None:
    def troubled(topic: str, leader: int = 1) -> PartitionState:
        return PartitionState(TopicPartition(topic, 0), leader, (1, 2, 3), (1,), (2, 3))

    partitions = [
        troubled("__consumer_offsets"),
        troubled("__transaction_state", -1),
        troubled("behind"),
        troubled("gone", -1),
        troubled("refused"),
        troubled("__refused"),
    ]
    overview = Overview("id", [], partitions, {"refused": 2, "__refused": 2}, [])
    assert [partition.where.topic for partition in sort_by_trouble(overview, partitions)] == [
        *("gone", "__transaction_state", "refused", "__refused", "behind", "__consumer_offsets"),
    ]


def test_brokers_are_counted_and_named_in_words_that_cannot_be_confused(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = [
        BrokerState(1, "host:1", None, False),
        BrokerState(2, "host:2", None, True),
        BrokerState(3, "host:3", None, False, True),
        BrokerState(5, "host:5", None, True),
    ]
    print_summary(Overview("id", brokers, [], {}, []))
    assert capsys.readouterr().out.startswith("cluster id: 2 brokers alive; brokers 2, 5 fenced; broker 3 cordoned\n")


def test_only_the_first_errors_are_named() -> None:
    assert join_first(["a", "b", "c"]) == "a; b; c"
    assert join_first([str(number) for number in range(54)]) == "0; 1; 2; ... and 51 more"
