"""Progress of queries in consumer groups, as Spark tells a listener of it."""

from types import SimpleNamespace
from typing import Any

from ottla.pipeline.cluster import Cluster
from ottla.spark.progress import GroupOffsets, topic_offsets
from ottla.testing import LocalBroker
from tests.spark.topics import committed


def progress(query_id: str, *ends: str) -> Any:
    sources = [SimpleNamespace(endOffset=end) for end in ends]
    return SimpleNamespace(progress=SimpleNamespace(id=query_id, sources=sources))


def test_the_end_of_a_batch_is_committed(broker: LocalBroker) -> None:
    """Of the query that is meant, of topics alone, and of those that were chosen."""
    broker.create_topic("seen", partitions=2)
    broker.create_topic("other")
    cluster = Cluster({"bootstrap.servers": broker.bootstrap})
    listener = GroupOffsets(cluster, "watchers", "mine", frozenset({"seen"}))
    listener.onQueryProgress(progress("another", '{"seen": {"0": 9, "1": 9}}'))
    listener.onQueryProgress(progress("mine", '{"seen": {"0": 3, "1": 5}}', '{"other": {"0": 1}}', "17", '{"path": 3}'))
    assert committed(broker, "watchers", "seen", 2) == [3, 5]
    assert committed(broker, "watchers", "other", 1) == [-1001]
    listener.onQueryTerminated(SimpleNamespace(id="mine"))  # type: ignore[arg-type]


def test_a_group_that_cannot_be_told_does_not_stop_a_query(broker: LocalBroker) -> None:
    cluster = Cluster({"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "50"})
    GroupOffsets(cluster, "watchers", "mine", None).onQueryProgress(progress("mine", '{"seen": {"0": 3}}'))


def test_offsets_of_other_sources_are_passed_over() -> None:
    for text in (None, "", "null", "12", '{"a": 1}', '{"a": {"x": 1}}', "[1]", '"text"', '{"a": {"0": {"b": 1}}}'):
        assert topic_offsets(text) == {}
