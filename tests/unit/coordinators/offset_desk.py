"""The machine of one partition of groups and offsets, without a broker: with a log, and a clock that tests move."""

from collections.abc import Callable, Iterable
from typing import Any

from ottla.cluster.changes import CreatePartition, CreateTopic, DeleteTopic, RegisterBroker
from ottla.cluster.image import EMPTY, Image
from ottla.config import BrokerConfig
from ottla.coordinators.formats import GROUP_FORMAT
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.machine import Caller, Meters, Outcome, ProducerIdentity, StoredRecord, Turn
from ottla.errors import ErrorCode
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

Entry = tuple[bytes, bytes | None, int, ProducerIdentity | None] | tuple[ProducerIdentity, bool]
"""A stored record with its time and transaction; or a marker."""


def image_of(*names: str) -> Image:
    changes: list[Any] = [RegisterBroker(1, (bytes(16),), (), None, True, 1)]
    for name in names:
        topic_id = topic_id_of(name)
        changes.append(CreateTopic(topic_id, name))
        changes += [CreatePartition(topic_id, number, (1,), (1,), 1) for number in range(3)]
    return EMPTY.replay(1, changes)


def topic_id_of(name: str) -> bytes:
    return name.encode().rjust(16, b"-")


class Desk:
    def __init__(self, *topics: str, **settings: int) -> None:
        self.config = BrokerConfig.of({name.replace("_", "."): str(value) for name, value in settings.items()})
        self.image = image_of(*(topics or ("t", "u")))
        self.now_ms = 1_000_000_000
        self.log: list[Entry] = []
        self.groups = GroupMachine()
        self.meters = Meters.fresh()
        self._turn(self.groups.finish_loading)

    # --- turns ---

    def run(self, decide: Callable[[GroupMachine, Turn], Outcome]) -> Any:
        """Run a turn, which must have a reply, and return that."""
        outcome = self._turn(lambda turn: decide(self.groups, turn))
        (reply,) = outcome.replies
        return reply.response

    def _turn(self, decide: Callable[[Turn], Outcome]) -> Outcome:
        outcome = decide(Turn(self.now_ms, self.now_ms, self.image, self.config, self.meters, ticket=1))
        for effect in outcome.effects:
            effect()
        for record in outcome.records:
            self.store(record, outcome.producer)
        return outcome

    def store(self, record: StoredRecord, producer: ProducerIdentity | None = None) -> None:
        key, value = GROUP_FORMAT.encode(record)
        self.log.append((key, value, self.now_ms, producer))
        self.groups.replay(record, self.now_ms, producer)

    def end_transaction(self, producer: ProducerIdentity, *, committed: bool) -> None:
        self.log.append((producer, committed))
        self.groups.end_transaction(producer, committed)

    def reload(self) -> None:
        """Another coordinator takes over, and loads the log."""
        self.groups = GroupMachine()
        for entry in self.log:
            if len(entry) == 2:
                self.groups.end_transaction(*entry)
            else:
                record = GROUP_FORMAT.decode(entry[0], entry[1])
                assert record is not None
                self.groups.replay(record, entry[2], entry[3])
        self._turn(self.groups.finish_loading)

    def passes(self, milliseconds: int) -> None:
        """Let time pass, and wake the machine whenever it wants to be woken."""
        end = self.now_ms + milliseconds
        while (wake_at := self.groups.wake_at) is not None and wake_at <= end:
            self.now_ms = max(self.now_ms, wake_at)
            self._turn(self.groups.wake)
        self.now_ms = end

    def delete_topic(self, name: str) -> None:
        self.image = self.image.replay(self.image.version + 1, [DeleteTopic(topic_id_of(name))])
        self._turn(lambda turn: self.groups.delete_offsets_of_topics([name], turn))

    # --- requests ---

    def commit(
        self,
        offset: int,
        *,
        group: str = "g",
        topic: str = "t",
        partition: int = 0,
        metadata: str | None = "",
        leader_epoch: int = -1,
        version: int = 9,
        **fields: Any,
    ) -> int:
        """The error code of the partition; KafkaError if the whole request is refused."""
        asked = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )
        topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id_of(topic), partitions=[asked])]
        request = OffsetCommitRequest(group_id=group, topics=topics, **fields)
        response = self.run(lambda groups, turn: groups.commit_offsets(request, turn, version=version))
        code: int = response.topics[0].partitions[0].error_code
        return code

    def commit_in_transaction(self, offset: int, producer: ProducerIdentity, *, topic: str = "t", **fields: Any) -> int:
        asked = TxnOffsetCommitRequestPartition(committed_offset=offset)
        request = TxnOffsetCommitRequest(
            group_id="g",
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[asked])],
            **fields,
        )
        response = self.run(lambda groups, turn: groups.commit_transactional_offsets(request, turn))
        code: int = response.topics[0].partitions[0].error_code
        return code

    def fetch(self, topic: str = "t", partition: int = 0, *, group: str = "g", stable: bool = False) -> Any:
        """One partition of the response."""
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        return self.fetch_group(topics, group=group, stable=stable).topics[0].partitions[0]

    def fetch_group(
        self,
        topics: list[OffsetFetchRequestTopics] | None,
        *,
        group: str = "g",
        stable: bool = False,
        version: int = 9,
    ) -> Any:
        request = OffsetFetchRequestGroup(group_id=group, topics=topics)
        return self.run(
            lambda groups, turn: groups.fetch_offsets(request, turn, version=version, require_stable=stable)
        )

    def offset(self, topic: str = "t", partition: int = 0, *, group: str = "g", stable: bool = False) -> int | str:
        """The offset that a reader gets, or the name of the error."""
        found = self.fetch(topic, partition, group=group, stable=stable)
        if found.error_code:
            return ErrorCode(found.error_code).name
        offset: int = found.committed_offset
        return offset

    def delete_offsets(self, *topics: str, group: str = "g") -> list[int]:
        """The error code of partition 0 of each topic."""
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        request = OffsetDeleteRequest(
            group_id=group, topics=[OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in topics]
        )
        response = self.run(lambda groups, turn: groups.delete_offsets(request, turn))
        return [topic.partitions[0].error_code for topic in response.topics]

    def delete_group(self, group: str = "g") -> None:
        self.run(lambda groups, turn: groups.delete_group(group, turn))

    def listed(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[str]:
        found = self.run(lambda groups, turn: groups.list_groups(states, types, turn))
        return [f"{group.group_id} {group.group_state} {group.group_type} {group.protocol_type!r}" for group in found]

    # --- a member of a classic group ---

    def join(
        self,
        member_id: str = "m",
        *,
        protocol_type: str = "other",
        metadata: bytes = b"",
        session_timeout_ms: int = 10_000,
    ) -> None:
        """Join group g as its only member, in generation 1, with an assignment."""
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=10_000,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name="p", metadata=metadata)],
        )
        caller = Caller("client", "/host")
        self._turn(lambda turn: self.groups.join_group(request, caller, turn, version=3, fresh_member_id=member_id))
        self.passes(3000)
        assignment = SyncGroupRequestAssignment(member_id=member_id, assignment=b"")
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[assignment])
        self._turn(lambda turn: self.groups.sync_group(sync, turn))
        assert self.groups.groups["g"].state_name == "Stable"

    def leave(self, member_id: str = "m") -> None:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
        self._turn(lambda turn: self.groups.leave_group(request, turn))
        assert self.groups.groups["g"].state_name == "Empty"
