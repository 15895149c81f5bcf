"""MirrorSource: copies topics of another cluster as they are, exactly once.

Each partition of the source is a source partition with MirrorMaker 2's name and offset, so an offsets topic of
MirrorMaker 2 is continued. The offset is that of the last record that was read. Only committed records are read. The
map of offsets goes into the transaction of the records.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from logging import getLogger
from typing import Any, ClassVar, Final

import numpy as np

from ottla.client.backoff import now_ms
from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, Client
from ottla.client.fetching import DataLoss, fetch
from ottla.client.sending import OffsetRun
from ottla.connect.connector import MAX_ROWS, ConnectorContext, Part, Source, SourceBatch, SourceOffset, partition_key
from ottla.connect.connectors.mirror import clusters
from ottla.connect.connectors.mirror.formats import OffsetSync, to_raw
from ottla.connect.connectors.mirror.mirror_settings import PREFIXES, SOURCE_SETTINGS
from ottla.connect.connectors.mirror.offset_map import find_points
from ottla.connect.connectors.mirror.policy import ReplicationPolicy, TopicChoice
from ottla.connect.connectors.mirror.timers import Timer
from ottla.connect.data.columns import RawRecords
from ottla.connect.errors import RetriableError
from ottla.connect.running.topics import TopicGroup, create_topic
from ottla.connect.settings.definition import Settings
from ottla.connect.worker.topics import TopicForm, create_store_topic
from ottla.pipeline.decoding import decode
from ottla.topic_partition import TopicPartition

log = getLogger(__name__)

BYTES_MAX: Final = 64 * 1024 * 1024
"""A task reads about so many bytes of a partition in one round."""
_COLUMNS: Final = ("key", "value", "timestamp", "partition", "headers", "offset")
_WRITTEN: Final = _COLUMNS[:-1]


class MirrorSource(Source):
    settings: ClassVar[Settings] = SOURCE_SETTINGS
    prefixes: ClassVar[tuple[str, ...]] = PREFIXES
    version: ClassVar[str] = "1"
    follows_up: ClassVar[bool] = True

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._policy = ReplicationPolicy.of(config)
        self._choice = TopicChoice.of(config, self._policy)
        self._exclude = re.compile("|".join(f"(?:{each})" for each in config["config.properties.exclude"]) or r"(?!)")
        self._reader = clusters.make_client(config, context, "source", "consumer", for_driver=False)
        self._source: Client | None = None
        self._target: Client | None = None
        self._partitions: dict[str, int] = {}
        """The topics that are mirrored, with how many partitions they have."""
        self._topics_due = Timer(config, "refresh.topics", once_at_least=True)
        self._settings_due = Timer(config, "sync.topic.configs")
        self._acls_due = Timer(config, "sync.topic.acls")
        self._read: dict[TopicPartition, tuple[TopicPartition, list[Any], int]] = {}
        """In a task: by partition of the target, that of the source, the offsets of its records and the one after."""

    def __getstate__(self) -> dict[str, Any]:
        """Without the driver's clients."""
        return {**self.__dict__, "_source": None, "_target": None}

    # On the driver

    def start(self) -> None:
        if not self.config["enabled"]:
            return
        self._source = clusters.make_client(self.config, self.context, "source", "admin")
        self._target = clusters.make_client(self.config, self.context, "target", "admin")
        if self.config["emit.offset-syncs.enabled"]:
            name = self._policy.offset_syncs_topic(self._policy.source)
            replicas = self.config["offset-syncs.topic.replication.factor"]
            create_store_topic(self._target, TopicForm(name, 1, replicas, {}))

    def stop(self) -> None:
        for client in (self._source, self._target):
            if client is not None:
                client.close()

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        source, target = self._source, self._target
        if source is None or target is None:
            return ()
        now_s = time.monotonic()
        for timer, do in (
            (self._topics_due, self._refresh_topics),
            (self._settings_due, self._mirror_settings),
            (self._acls_due, self._mirror_acls),
        ):
            if timer.is_due(now_s):
                do(source, target)
                timer.note_done(now_s)
        return self._find_parts(source, offsets)

    def _find_parts(self, source: Client, offsets: Mapping[str, SourceOffset]) -> list[Part]:
        partitions = [TopicPartition(name, each) for name, count in self._partitions.items() for each in range(count)]
        if not partitions:
            return []
        ends = source.list_offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
        found = {}
        for where in partitions:
            offset = offsets.get(partition_key(self._to_source_partition(where)))
            position = None if offset is None else int(offset["offset"]) + 1
            if position != ends[where].offset:
                found[where] = position
        starts = source.list_offsets(dict.fromkeys(found, EARLIEST)) if found else {}
        parts = []
        for where, position in found.items():
            start, end = self._find_start(where, position, starts[where].offset, ends[where].offset), ends[where].offset
            if start < end:
                parts.append(Part(self._to_source_partition(where), {"start": start, "end": end}))
        return parts

    def _find_start(self, where: TopicPartition, position: int | None, first: int, end: int) -> int:
        if position is None:
            resets = (self.config.get(f"{prefix}consumer.auto.offset.reset") for prefix in ("source.", ""))
            return end if next(filter(None, resets), "earliest") == "latest" else first
        if position < first:
            log.warning(
                "connector %s: %s: the source has deleted %d records before they were mirrored",
                self.context.name,
                where,
                first - position,
            )
            return first
        if position > end:
            log.warning(
                "connector %s: %s was created anew in the source: it is mirrored from its beginning",
                self.context.name,
                where,
            )
            return first
        return position

    def _to_source_partition(self, where: TopicPartition) -> dict[str, Any]:
        return {"cluster": self._policy.source, "partition": where.partition, "topic": where.topic}

    def _refresh_topics(self, source: Client, target: Client) -> None:
        wanted = {
            name: count for name, count in source.count_partitions(pattern=".*").items() if self._choice.has(name)
        }
        there = target.count_partitions(pattern=".*")
        new = [name for name in wanted if self._policy.name_in_target(name) not in there]
        settings = self._read_settings(source, new)
        for name in new:
            form = TopicGroup(
                partitions=wanted[name],
                replication_factor=self.config["replication.factor"],
                settings=settings[name],
            )
            create_topic(target, self._policy.name_in_target(name), form)
        for name, count in wanted.items():
            mirrored = self._policy.name_in_target(name)
            if mirrored in there and there[mirrored] < count:
                clusters.add_partitions(target, mirrored, count)
        self._partitions = wanted

    def _read_settings(self, source: Client, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        if not topics:
            return {}
        with_defaults = self.config["use.defaults.from"] == "source"
        return {
            name: clusters.choose_settings(found, self._exclude, with_defaults=with_defaults)
            for name, found in clusters.describe_settings(source, topics).items()
        }

    def _mirror_settings(self, source: Client, target: Client) -> None:
        found = self._read_settings(source, list(self._partitions))
        wanted = {self._policy.name_in_target(name): settings for name, settings in found.items()}
        if wanted:
            clusters.change_settings(target, wanted, self._exclude)

    def _mirror_acls(self, source: Client, target: Client) -> None:
        found = clusters.list_topic_acls(source)
        if found is None:
            return
        chosen = [acl for acl in found if self._choice.has(acl.resource_name)]
        for acl in chosen:
            acl.resource_name = self._policy.name_in_target(acl.resource_name)
        if chosen:
            clusters.create_acls(target, chosen)

    # In a Spark task

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        topic, partition = part.partition["topic"], part.partition["partition"]
        start, end = part.work["start"], part.work["end"]
        mirrored = self._policy.name_in_target(topic)
        source, target = TopicPartition(topic, partition), TopicPartition(mirrored, partition)
        upstream: list[Any] = []
        answers = fetch(self._reader, topic, partition, start, end, isolation=READ_COMMITTED)
        rows = size = 0
        try:
            for found in decode(answers, topic, partition, start, end, _COLUMNS):
                upstream.append(found.column("offset").to_numpy())
                reached = int(upstream[-1][-1]) + 1
                self._read[target] = source, upstream, reached
                yield SourceBatch((), {"offset": reached - 1}, [RawRecords(mirrored, found.select(_WRITTEN))])
                rows += found.num_rows
                size += found.nbytes
                if rows >= MAX_ROWS or size >= BYTES_MAX:
                    answers.close()
                    return
        except DataLoss as error:
            raise RetriableError(str(error)) from None
        if upstream:
            self._read[target] = source, upstream, end
        yield SourceBatch([], {"offset": end - 1})

    def follow_up(self, written: Mapping[TopicPartition, Sequence[OffsetRun]]) -> Sequence[RawRecords]:
        if not self.config["emit.offset-syncs.enabled"]:
            return ()
        records = []
        for target, (source, upstream, end) in self._read.items():
            points = find_points(np.concatenate(upstream), end, written.get(target, ()), self.config["offset.lag.max"])
            records += [OffsetSync(source, *point).encode() for point in points]
        self._read.clear()
        if not records:
            return ()
        return [to_raw(self._policy.offset_syncs_topic(self._policy.source), records, now_ms())]
