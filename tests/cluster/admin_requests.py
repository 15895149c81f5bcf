"""Requests of an administrator to a cluster in trouble: to any broker, whatever its state, with any outcome.

An answer may be an error that Kafka documents for the request, or that says that the cluster is in trouble; any other
one is kept as a failure. Every request is answered as long as the broker lives: after what it says as its time-out, and
whatever a slow machine needs.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster.links import HOST
from tests.cluster.processes import OttlaNode, OttlaNodes
from tests.patience import PATIENCE_S, ask_now_and_then
from tests.raw_client import RawClient

TIMEOUT_MS = 5000
"""What requests say: after so long the broker answers REQUEST_TIMED_OUT. The client waits for PATIENCE_S."""
TOPIC, BROKER = 2, 4
"""Kinds of resources that have settings."""
SET, DELETE = 0, 1
PAGE_BYTES = 1 << 20
EARLIEST = -2

TROUBLE = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Retriable errors that any request may be answered with."""

Resource = tuple[int, str]
"""The kind and name of what has settings."""


class ReplicaLog(NamedTuple):
    """What a replica holds: its first offset, its end, and the batches by base offset."""

    start: int
    end: int
    batches: dict[int, bytes]

    def decode(self) -> Iterator[batch.Record]:
        for data in self.batches.values():
            if not batch.read_header(data).is_control:
                yield from batch.decode(data)


class Requests:
    """Sends requests to brokers that may be down, and counts the errors. `failures` are answers that must not be."""

    def __init__(self, nodes: OttlaNodes, random: Random) -> None:
        self.nodes = nodes
        self.random = random
        self.failures: list[str] = []
        self.counts: Counter[str] = Counter()

    def ask(self, request: Any, broker: OttlaNode | None = None) -> Any:
        """The answer of a broker, or of any one. None if the broker is down, or went down before it answered."""
        broker = broker or self.random.choice(list(self.nodes.brokers.values()))
        try:
            with RawClient(HOST, broker.port) as client:
                return client.request(request, request.VERSIONS[-1])
        except TimeoutError:
            raise AssertionError(f"{broker.name} has not answered {request} for {PATIENCE_S} s") from None
        except OSError:
            self.counts[f"{type(request).__name__.removesuffix('Request')}: no connection"] += 1
            return None

    def judge(self, what: str, code: int, documented: Collection[ErrorCode] = (), message: str | None = None) -> bool:
        """Whether it was done. An error that nothing explains is a failure."""
        error = ErrorCode(code)
        self.counts[f"{what.split()[0]}: {error.name}"] += 1
        if error is ErrorCode.NONE:
            return True
        if error not in TROUBLE and error not in documented:
            self.failures.append(f"{what}: {error.name}: {message}")
        return False

    def find_partitions(self, topic: str) -> dict[int, tuple[int, list[int]]]:
        """Leader and replicas of each partition, as some broker knows them."""
        answer = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False))
        found = answer.topics if answer is not None else []
        return {
            each.partition_index: (each.leader_id, each.replica_nodes) for topic in found for each in topic.partitions
        }

    def find_leader(self, where: TopicPartition) -> OttlaNode | None:
        leader, _ = self.find_partitions(where.topic).get(where.partition, (-1, []))
        return self.nodes.brokers.get(leader)

    def change_settings(self, resource: Resource, settings: Mapping[str, str | None]) -> bool | None:
        """Set settings, or remove (None) them. Whether that was done; None if nobody knows."""
        kind, name = resource
        configs = [
            AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in settings.items()
        ]
        changed = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        # A broker takes settings for itself only.
        answer = self.ask(
            IncrementalAlterConfigsRequest(resources=[changed]),
            self.nodes.brokers[int(name)] if kind == BROKER else None,
        )
        if answer is None:
            return None
        (result,) = answer.responses
        done = self.judge(f"settings {name} {settings}", result.error_code, message=result.error_message)
        return None if result.error_code == ErrorCode.REQUEST_TIMED_OUT else done

    def describe_settings(self, broker: OttlaNode, resource: Resource) -> dict[str, str | None]:
        """The settings of something as a broker knows them."""
        kind, name = resource
        wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        answer = self.ask(DescribeConfigsRequest(resources=[wanted]), broker)
        return {each.name: each.value for result in answer.results for each in result.configs} if answer else {}

    def list_reassignments(self, broker: OttlaNode | None = None) -> list[TopicPartition] | None:
        """Partitions that are being reassigned. None if the broker cannot be asked."""
        answer = self.ask(ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS), broker)
        if answer is None or not self.judge("list reassignments", answer.error_code, message=answer.error_message):
            return None
        return [
            TopicPartition(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions
        ]

    def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> bool:
        """Reassign partitions, or cancel (None) that. Whether all of it was done."""
        topics: dict[str, ReassignableTopic] = {}
        for where, replicas in targets.items():
            wanted = ReassignablePartition(
                partition_index=where.partition, replicas=None if replicas is None else list(replicas)
            )
            topics.setdefault(where.topic, ReassignableTopic(name=where.topic)).partitions.append(wanted)
        answer = self.ask(AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=list(topics.values())))
        if answer is None or not self.judge("reassignment", answer.error_code, message=answer.error_message):
            return False
        done = True
        for topic in answer.responses:
            for each in topic.partitions:
                target = targets[TopicPartition(topic.name, each.partition_index)]
                what = f"{'cancel' if target is None else 'reassign'} {topic.name}-{each.partition_index} to {target}"
                # The only complete replicas may be among those that a reassignment adds.
                documented = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
                allowed = documented if target is None else ()
                done &= self.judge(what, each.error_code, allowed, each.error_message)
        return done

    def describe_directories(self, broker: OttlaNode) -> dict[str, dict[TopicPartition, bool]] | None:
        """The replicas of each data directory, and whether each is a copy that will take the place of another."""
        answer = self.ask(DescribeLogDirsRequest(), broker)
        if answer is None:
            return None
        found: dict[str, dict[TopicPartition, bool]] = {}
        for directory in answer.results:
            self.judge(f"directory {directory.log_dir} of {broker.name}", directory.error_code)
            found[directory.log_dir] = {
                TopicPartition(topic.name, each.partition_index): each.is_future_key
                for topic in directory.topics
                for each in topic.partitions
            }
        return found

    def read_replicas(self, topic: str) -> Iterator[tuple[TopicPartition, int, ReplicaLog]]:
        """Every replica of a topic to which nobody writes, once it has the whole log. Leaders come first."""
        for index, (leader, replicas) in sorted(self.find_partitions(topic).items()):
            where = TopicPartition(topic, index)
            whole = self._read_whole(where, leader)
            yield where, leader, whole
            for broker in set(replicas) - {leader}:
                yield where, broker, self._read_whole(where, broker, whole)

    def _read_whole(self, where: TopicPartition, broker: int, like: ReplicaLog | None = None) -> ReplicaLog:
        log: ReplicaLog | None = None

        def explain() -> str:
            return f"{where} at broker {broker}: {log and log[:2]}, not {like and like[:2]}"

        for _ in ask_now_and_then(explain):
            log = self._read_replica(where, broker)
            if log is not None and (like is None or (log.start, log.end) == (like.start, like.end)):
                break
        assert log is not None
        return log

    def _read_replica(self, where: TopicPartition, broker: int) -> ReplicaLog | None:
        """What a replica holds up to its high watermark, from the leader's first offset on. None: not now."""
        leader = self.find_leader(where)
        earliest = ListOffsetsPartition(partition_index=where.partition, timestamp=EARLIEST)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=where.topic, partitions=[earliest])])
        answer = self.ask(request, leader) if leader is not None else None
        if answer is None or answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return None
        batches: dict[int, bytes] = {}
        offset = answer.topics[0].partitions[0].offset
        with RawClient(HOST, self.nodes.brokers[broker].port) as client:
            while True:
                found = client.fetch(*where, offset, max_bytes=PAGE_BYTES)
                if found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    return None  # also a follower that does not reach this offset yet
                assert found.error_code == ErrorCode.NONE, (where, broker, offset, found)
                data = bytes(found.records or b"")  # type: ignore[arg-type]
                if not data:
                    return ReplicaLog(found.log_start_offset, found.high_watermark, batches)
                for position, header in batch.headers(data):
                    batches[header.base_offset] = data[position : position + header.size]
                    offset = header.next_offset
