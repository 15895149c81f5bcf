"""Decides about requests to commit, read and delete offsets."""

from collections.abc import Callable, Mapping, Sequence

from ottla.cluster.image import Image
from ottla.coordinators.formats import OffsetCommitKey, OffsetCommitValue
from ottla.coordinators.groups.group import Group, PartitionCheck
from ottla.coordinators.machine import Outcome, ProducerIdentity, StoredRecord, Turn
from ottla.coordinators.offsets.offsets import Offsets
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition
from ottla.wire.message import ZERO_UUID
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

TOPIC_IDS_FROM = 10
"""OffsetCommit and OffsetFetch name topics by id from this version on."""

_NONE = int(ErrorCode.NONE)
_FOREVER_MS = 2**63 - 1


class OffsetRequests:
    def __init__(self, groups: Mapping[str, Group], offsets: Offsets) -> None:
        self._groups = groups
        self._offsets = offsets

    # Committing

    def commit(self, request: OffsetCommitRequest, turn: Turn, version: int) -> Outcome:
        check = self._check_commit(request, turn, version)
        expire_ms = -1 if request.retention_time_ms < 0 else min(turn.wall_ms + request.retention_time_ms, _FOREVER_MS)
        records: list[StoredRecord] = []
        topics = []
        for topic in request.topics:
            found = (
                turn.image.topic_by_id(topic.topic_id) if version >= TOPIC_IDS_FROM else turn.image.topic(topic.name)
            )
            results = []
            for partition in topic.partitions:
                code = _NONE
                if found is None:
                    code = _find_unknown_topic_code(version)
                elif not 0 <= partition.partition_index < len(found.partitions):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif _is_too_long(partition, turn):
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    if check is not None:
                        check(found.id, partition.partition_index)
                    value = _build_value(partition, found.id, turn.wall_ms, expire_ms)
                    records.append(_build_record(request.group_id, found.name, partition.partition_index, value))
                results.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                )
            topics.append(OffsetCommitResponseTopic(topic_id=topic.topic_id, name=topic.name, partitions=results))
        turn.meters.groups.offsets_committed += len(records)
        return Outcome.answer(turn, OffsetCommitResponse(topics=topics), records, may_be_refused=True)

    def _check_commit(self, request: OffsetCommitRequest, turn: Turn, version: int) -> PartitionCheck | None:
        generation = request.generation_id_or_member_epoch
        group = self._groups.get(request.group_id)
        if group is not None:
            return group.check_commit(
                request.member_id, request.group_instance_id, generation, turn, api_version=version
            )
        if generation >= 0:
            if version >= 9:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{request.group_id}'")
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"there is no group '{request.group_id}'")
        return None

    def commit_in_transaction(self, request: TxnOffsetCommitRequest, turn: Turn) -> Outcome:
        """Store offsets that are pending until the transaction's marker comes."""
        group = self._groups.get(request.group_id)
        check = None
        if group is not None:
            check = group.check_transactional_commit(
                request.member_id, request.group_instance_id, request.generation_id, turn
            )
        elif request.generation_id >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"there is no group '{request.group_id}'")
        records: list[StoredRecord] = []
        topics = []
        for topic in request.topics:
            found = turn.image.topic(topic.name)
            results = []
            for partition in topic.partitions:
                code = _NONE
                if found is None or not 0 <= partition.partition_index < len(found.partitions):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif _is_too_long(partition, turn):
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    if check is not None:
                        check(found.id, partition.partition_index)
                    value = _build_value(partition, found.id, turn.wall_ms, -1)
                    records.append(_build_record(request.group_id, found.name, partition.partition_index, value))
                results.append(
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                )
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=results))
        turn.meters.groups.offsets_committed += len(records)
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        return Outcome.answer(turn, TxnOffsetCommitResponse(topics=topics), records, producer, may_be_refused=True)

    # Reading

    def fetch(self, request: OffsetFetchRequestGroup, turn: Turn, version: int, require_stable: bool) -> Outcome:
        """Read the offsets of one group: those of the named partitions, or all."""
        group = self._groups.get(request.group_id)
        if group is not None and (request.member_id is not None or request.member_epoch >= 0):
            group.check_fetch(request.member_id or "", request.member_epoch, turn)
        if request.topics is None:
            topics = self._read_all_topics(request.group_id, turn.image, version, require_stable)
        else:
            topics = []
            for asked in request.topics:
                name: str | None = asked.name
                if version >= TOPIC_IDS_FROM:
                    name = turn.image.topic_names.get(asked.topic_id)
                topics.append(
                    OffsetFetchResponseTopics(
                        topic_id=asked.topic_id,
                        name=asked.name,
                        partitions=self._read_partitions(
                            request.group_id, name, asked.partition_indexes, turn.image, require_stable
                        ),
                    )
                )
        return Outcome.answer(turn, OffsetFetchResponseGroup(group_id=request.group_id, topics=topics))

    def _read_all_topics(
        self, group_id: str, image: Image, version: int, require_stable: bool
    ) -> list[OffsetFetchResponseTopics]:
        offsets = self._offsets.find_group(group_id)
        topics = []
        for name, partitions in offsets.by_topic.items() if offsets is not None else ():
            topic = image.topic(name)
            if topic is None and version >= TOPIC_IDS_FROM:
                continue  # the topic was deleted, and these versions name topics by id
            topics.append(
                OffsetFetchResponseTopics(
                    topic_id=topic.id if topic is not None else ZERO_UUID,
                    name=name,
                    partitions=self._read_partitions(group_id, name, list(partitions), image, require_stable),
                )
            )
        return topics

    def _read_partitions(
        self, group_id: str, name: str | None, indexes: Sequence[int], image: Image, require_stable: bool
    ) -> list[OffsetFetchResponsePartitions]:
        if name is None:
            return [_report_no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in indexes]
        topic = image.topic(name)
        topic_id = ZERO_UUID if topic is None else topic.id
        return [self._read_partition(group_id, name, topic_id, index, require_stable) for index in indexes]

    def _read_partition(
        self, group_id: str, topic: str, topic_id: bytes, index: int, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        if require_stable and self._offsets.is_pending(group_id, topic, index):
            return _report_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        value = self._offsets.find_committed(group_id, topic, index)
        if value is None or (ZERO_UUID not in (value.topic_id, topic_id) and value.topic_id != topic_id):
            return _report_no_offset(
                index, ErrorCode.NONE
            )  # never committed, or committed for a deleted topic of the same name
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
        )

    # Deleting

    def delete(self, request: OffsetDeleteRequest, turn: Turn) -> Outcome:
        group = self._groups.get(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{request.group_id}'")
        group.check_delete_offsets()
        deleted: list[TopicPartition] = []
        topics = [self._delete_topic(group, topic, turn.image, deleted.append) for topic in request.topics]
        records = self._offsets.tombstones(request.group_id, deleted)
        turn.meters.groups.offsets_deleted += len(records)
        return Outcome.answer(turn, OffsetDeleteResponse(topics=topics), records, may_be_refused=True)

    def _delete_topic(
        self, group: Group, topic: OffsetDeleteRequestTopic, image: Image, delete: Callable[[TopicPartition], None]
    ) -> OffsetDeleteResponseTopic:
        subscribed = group.is_subscribed_to(topic.name)
        results = []
        for partition in topic.partitions:
            index, code = partition.partition_index, ErrorCode.NONE
            if image.partition(topic.name, index) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif self._offsets.has_offset(group.id, topic.name, index):
                delete(TopicPartition(topic.name, index))
            results.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        return OffsetDeleteResponseTopic(name=topic.name, partitions=results)


def _find_unknown_topic_code(version: int) -> int:
    return ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPIC_IDS_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_too_long(partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition, turn: Turn) -> bool:
    metadata = partition.committed_metadata
    return metadata is not None and len(metadata) > turn.config.offset_metadata_max_bytes


def _build_value(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: bytes,
    now_ms: int,
    expire_ms: int,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )


def _build_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> StoredRecord:
    return StoredRecord(OffsetCommitKey(group_id=group_id, topic=topic, partition=partition), value)


def _report_no_offset(index: int, code: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=code)
