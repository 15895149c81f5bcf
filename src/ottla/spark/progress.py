"""Commits the progress of a query to a consumer group after each batch, so that every Kafka tool shows its lag.

The source itself commits to `kafka.group.id`, but Spark tells it that a batch has ended only when the next one is
planned. This listener commits at once, also for a source without a group.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from ottla.client.client import Client
from ottla.client.connection import Unreachable
from ottla.client.groups import CommittedOffset, commit_offsets
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition

logger = logging.getLogger("ottla.spark")


class GroupOffsets(StreamingQueryListener):
    """Commits the end offsets of one query after each of its batches."""

    def __init__(self, client: Client, group: str, query_id: str, topics: frozenset[str] | None) -> None:
        self._client = client
        self._group = group
        self._query_id = query_id
        self._topics = topics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if str(event.progress.id) != self._query_id:
            return
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for source in event.progress.sources:
            for where, offset in parse_topic_offsets(source.endOffset).items():
                if self._topics is None or where.topic in self._topics:
                    offsets[where] = CommittedOffset(offset)
        if not offsets:
            return
        try:
            commit_offsets(self._client, self._group, offsets)
        except (KafkaError, Unreachable) as error:  # the query depends on its checkpoint alone
            logger.warning("the offsets of group %s were not committed: %s", self._group, error)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if str(event.id) == self._query_id:
            self._client.close()


def commit_group_offsets(
    query: StreamingQuery, group: str, kafka: Mapping[str, str], *, topics: list[str] | None = None
) -> GroupOffsets:
    """Commit the end of each batch of `query` to a consumer group. `kafka` is a client's settings by Kafka's names.

    Only offsets of `topics`, if they are named: the sources of a query may belong to different clusters.
    """
    spark = SparkSession.active()
    chosen = None if topics is None else frozenset(topics)
    listener = GroupOffsets(Client(kafka), group, str(query.id), chosen)
    spark.streams.addListener(listener)
    return listener


def parse_topic_offsets(text: str | None) -> dict[TopicPartition, int]:
    """Offsets of topics, as a checkpoint stores them; empty for a source whose offsets have another form."""
    try:
        found = json.loads(text or "null")
        return {
            TopicPartition(topic, int(partition)): offset
            for topic, partitions in found.items()
            for partition, offset in partitions.items()
            if isinstance(offset, int)
        }
    except (AttributeError, ValueError):
        return {}
