"""MirrorCheckpoint: translates the committed offsets of the source's groups, so that a group can go on in the target.

Checkpoints are in MirrorMaker 2's topic and format. With `sync.group.offsets.enabled` the translated offsets are also
committed in the target, for groups without members there, and never to a lower offset than the target has.

A topic that was mirrored from the target in the first place is translated back with the map that the opposite flow has
written to the source, so a group that has failed over can return.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from logging import getLogger
from typing import Any, ClassVar

from ottla.client.backoff import now_ms
from ottla.client.client import Client
from ottla.client.groups import CommittedOffset, commit_offsets, fetch_offsets
from ottla.connect.connector import ConnectorContext, Part, Source, SourceBatch, SourceOffset
from ottla.connect.connectors.mirror import clusters
from ottla.connect.connectors.mirror.formats import BadRecord, Checkpoint, OffsetSync, to_raw
from ottla.connect.connectors.mirror.mirror_settings import CHECKPOINT_SETTINGS, PREFIXES
from ottla.connect.connectors.mirror.offset_map import OffsetMap
from ottla.connect.connectors.mirror.policy import NameFilter, ReplicationPolicy
from ottla.connect.connectors.mirror.timers import Timer
from ottla.connect.settings.definition import Settings
from ottla.connect.worker.topics import TopicForm, create_store_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition

log = getLogger(__name__)


class OffsetMaps:
    """The maps of all partitions, as far as they were read."""

    def __init__(self, client: Client, topic: str) -> None:
        self._reader = clusters.InternalReader(client, topic)
        self._maps: dict[TopicPartition, OffsetMap] = {}

    def refresh(self) -> None:
        for key, value in self._reader.read():
            try:
                sync = OffsetSync.decode(key, value)
            except BadRecord:
                continue
            self._maps.setdefault(sync.where, OffsetMap()).add(sync.upstream, sync.downstream)

    def find(self, where: TopicPartition) -> OffsetMap | None:
        return self._maps.get(where)


class MirrorCheckpoint(Source):
    settings: ClassVar[Settings] = CHECKPOINT_SETTINGS
    prefixes: ClassVar[tuple[str, ...]] = PREFIXES
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._policy = ReplicationPolicy.of(config)
        self._topics = NameFilter.of(config["topics"], config["topics.exclude"])
        self._group_names = NameFilter.of(config["groups"], config["groups.exclude"])
        self._groups_due = Timer(config, "refresh.groups", once_at_least=True)
        self._checkpoints_due = Timer(config, "emit.checkpoints")
        self._commits_due = Timer(config, "sync.group.offsets")
        self._groups: list[str] = []
        self._last: dict[tuple[str, TopicPartition], Checkpoint] = {}
        """What the checkpoints topic has."""
        self._pending: list[Checkpoint] = []
        self._clients: tuple[Client, Client] | None = None
        self._maps: OffsetMaps | None = None
        self._maps_back: OffsetMaps | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what only the driver has."""
        return {**self.__dict__, "_clients": None, "_maps": None, "_maps_back": None, "_last": {}, "_pending": []}

    # On the driver

    def start(self) -> None:
        if not self.config["enabled"]:
            return
        source = clusters.make_client(self.config, self.context, "source", "admin")
        target = clusters.make_client(self.config, self.context, "target", "admin")
        self._clients = source, target
        name, replicas = self._policy.checkpoints_topic, self.config["checkpoints.topic.replication.factor"]
        create_store_topic(target, TopicForm(name, 1, replicas, {}))
        for key, value in clusters.InternalReader(target, name).read():
            try:
                found = Checkpoint.decode(key, value)
            except BadRecord:
                continue
            self._last[found.group, found.where] = found
        self._maps = OffsetMaps(target, self._policy.offset_syncs_topic(self._policy.source))
        self._maps_back = OffsetMaps(source, self._policy.offset_syncs_topic(self._policy.target))

    def stop(self) -> None:
        for client in self._clients or ():
            client.close()

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        if self._clients is None:
            return ()
        source, target = self._clients
        now_s = time.monotonic()
        if self._groups_due.is_due(now_s):
            self._groups = [name for name in clusters.list_groups(source) if self._group_names.has(name)]
            self._groups_due.note_done(now_s)
        if not self._pending and self._checkpoints_due.is_due(now_s):
            self._pending = [each for group in self._groups for each in self._find_checkpoints(source, group)]
            self._checkpoints_due.note_done(now_s)
        if not self._pending and self._commits_due.is_due(now_s):
            for group in sorted({group for group, _ in self._last if group in self._groups}):
                self._commit(target, group)
            self._commits_due.note_done(now_s)
        if not self._pending:
            return ()
        work = [{**asdict(each), "where": [*each.where]} for each in self._pending]
        return [Part({"cluster": self._policy.source}, {"checkpoints": work})]

    def after_commit(self, offsets: Mapping[str, SourceOffset]) -> None:
        self._last.update({(each.group, each.where): each for each in self._pending})
        self._pending = []

    def _find_checkpoints(self, source: Client, group: str) -> Iterator[Checkpoint]:
        """New ones. A group that was set back in the source is followed; otherwise the target's offset only rises."""
        assert self._maps is not None
        assert self._maps_back is not None
        committed = fetch_offsets(source, group)
        self._maps.refresh()
        self._maps_back.refresh()
        for where, found in committed.items():
            if not self._topics.has(where.topic):
                continue
            translated = self._translate(where, found.offset)
            if translated is None:
                continue
            checkpoint = Checkpoint(group, translated[0], found.offset, translated[1], found.metadata)
            last = self._last.get((group, checkpoint.where))
            if last is None or checkpoint.upstream < last.upstream or checkpoint.downstream > last.downstream:
                yield checkpoint

    def _translate(self, where: TopicPartition, offset: int) -> tuple[TopicPartition, int] | None:
        assert self._maps is not None
        assert self._maps_back is not None
        origin = self._policy.find_origin(where.topic)
        if origin is not None and origin[0] == self._policy.target:
            there = TopicPartition(origin[1], where.partition)
            back = self._maps_back.find(there)
            found = None if back is None else back.translate_back(offset)
        else:
            there = TopicPartition(self._policy.name_in_target(where.topic), where.partition)
            forth = self._maps.find(where)
            found = None if forth is None else forth.translate(offset)
        return None if found is None else (there, found)

    def _commit(self, target: Client, group: str) -> None:
        if clusters.has_members(target, group):
            return
        there = fetch_offsets(target, group)
        higher = {
            where: CommittedOffset(each.downstream, each.metadata)
            for (name, where), each in self._last.items()
            if name == group and (where not in there or there[where].offset < each.downstream)
        }
        if not higher:
            return
        try:
            commit_offsets(target, group, higher)
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise
            log.info("connector %s: the offsets of group %s stay: %s", self.context.name, group, error)

    # In a Spark task

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        found = [Checkpoint(**{**each, "where": TopicPartition(*each["where"])}) for each in part.work["checkpoints"]]
        records = [each.encode() for each in found]
        yield SourceBatch((), {"offset": 0}, [to_raw(self._policy.checkpoints_topic, records, now_ms())])
