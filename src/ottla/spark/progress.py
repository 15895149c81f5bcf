"""Commits the progress of queries to consumer groups after each batch, so that every Kafka tool shows their lag.

The source itself commits to `kafka.group.id`, but it knows that a batch has ended only when Spark plans the next one or
finds that there is none: at once, unless a trigger makes Spark wait. `WaitingQueries`, which `ottla.spark.session()`
registers, commits for queries with such a trigger. `GroupCommitter` commits for one query that the user chooses, also
for a source without a group.
"""

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

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
from ottla.client.defaults import BOOTSTRAP, find_default_connection
from ottla.client.groups import CommittedOffset, commit_offsets
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition
from pyspark_ottla.options import parse_read_options

_WAITING = re.compile(r"ProcessingTimeTrigger\([1-9]|OneTimeTrigger")
"""How the JVM prints triggers after whose batches Spark waits, or plans no other batch."""

logger = logging.getLogger("ottla.spark")


class GroupCommitter(StreamingQueryListener):
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
        ends: dict[TopicPartition, int] = {}
        for source in event.progress.sources:
            for where, offset in parse_topic_offsets(source.endOffset).items():
                if self._topics is None or where.topic in self._topics:
                    ends[where] = offset
        commit_end(self._client, self._group, ends)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if str(event.id) == self._query_id:
            self._client.close()


class _Source(NamedTuple):
    """A source with `kafka.group.id` of a query that waits between its batches."""

    place: int
    """Its index among the sources of the query."""
    group: str
    client: Client


class WaitingQueries(StreamingQueryListener):
    """Commits the end offsets of batches to the groups of their sources, for queries that wait between two batches.

    Spark tells listeners about a batch some time after it has ended. The sources of queries that do not wait commit
    earlier, so a commit from here could only take their group back by a batch.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._sources: dict[str, list[_Source]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        try:
            self._sources[str(event.runId)] = find_waiting_sources(self._spark, str(event.id))
        except Exception as error:  # the query depends on its checkpoint alone
            logger.warning("groups of query %s may be late by a batch: %s", event.id, str(error).partition("\n")[0])

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        ends = event.progress.sources
        for source in self._sources.get(str(event.progress.runId), ()):
            commit_end(source.client, source.group, parse_topic_offsets(ends[source.place].endOffset))

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        for source in self._sources.pop(str(event.runId), ()):
            source.client.close()


def find_waiting_sources(spark: SparkSession, query_id: str) -> list[_Source]:
    """The sources with a group, if the query waits between its batches. Spark tells a listener neither about options
    nor about triggers, so the JVM's query is asked."""
    session: Any = spark
    query = session._jsparkSession.streams().get(query_id).streamingQuery()
    if not _WAITING.match(query.trigger().toString()):
        return []
    leaves = query.analyzedPlan().collectLeaves().distinct()
    streaming = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]
    found = []
    for place, leaf in enumerate(streaming):
        if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName() == "ottla":
            options = parse_read_options(dict(leaf.extraOptions().asCaseSensitiveMap()), streaming=True)
            if options.group:
                found.append(_Source(place, options.group, Client(options.kafka)))
    return found


def commit_end(client: Client, group: str, ends: Mapping[TopicPartition, int]) -> None:
    """Commit where a batch has ended. An error is only logged, because a query depends on its checkpoint alone."""
    if not ends:
        return
    try:
        commit_offsets(client, group, {where: CommittedOffset(offset) for where, offset in ends.items()})
    except (KafkaError, Unreachable) as error:
        logger.warning("the offsets of group %s were not committed: %s", group, error)


def commit_group_offsets(
    query: StreamingQuery, group: str, kafka: Mapping[str, str] | None = None, *, topics: list[str] | None = None
) -> GroupCommitter:
    """Commit the end of each batch of `query` to a consumer group. `kafka` is a client's settings by Kafka's names.

    If they have no bootstrap.servers, the cluster is that of the command line. Only offsets of `topics`, if they are
    named: the sources of a query may belong to different clusters.
    """
    spark = SparkSession.active()
    chosen = None if topics is None else frozenset(topics)
    settings = kafka if kafka and kafka.get(BOOTSTRAP) else find_default_connection() | dict(kafka or {})
    listener = GroupCommitter(Client(settings), group, str(query.id), chosen)
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
