"""A cluster that consists of a few dictionaries, as the client of the commands that move replicas.

It answers the requests of these commands at once. A move ends with the request that begins it, unless it is `stuck`.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from ottla.client.client import Client
from ottla.cluster.reassignments import AT_ONCE_MAX
from ottla.errors import ErrorCode
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BROKERS = (1, 2, 3)
TOPIC, BROKER = 2, 4


class StubCluster(Client):
    def __init__(self, replicas: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        super().__init__({"bootstrap.servers": "localhost:1"})
        self.replicas = dict(replicas)
        self.targets: dict[TopicPartition, tuple[int, ...]] = {}
        """What is moving, and where to."""
        self.stuck: set[TopicPartition] = set()
        """Partitions whose moves do not end."""
        self.settings_of: defaultdict[tuple[int, str], dict[str, str]] = defaultdict(dict)
        """What is set for topics and brokers, by the type and the name of the resource."""
        self.unreachable: dict[int, BaseException] = {}
        """What is raised when these brokers are asked what only they can answer."""
        self.refused: dict[TopicPartition, str] = {}
        """Partitions that no request changes, with the reason. What moved has ended."""
        self.moves_fail: BaseException | None = None
        """What is raised while a request to move waits for its answer."""
        self.whole_errors: list[int] = []
        """The error codes with which the next requests to move are answered, or 0."""
        self._handlers: dict[type, Callable[[Any], Any]] = {
            DescribeClusterRequest: self._describe,
            MetadataRequest: self._list_topics,
            ListPartitionReassignmentsRequest: self._list_moves,
            AlterPartitionReassignmentsRequest: self._move,
            DescribeConfigsRequest: self._describe_settings,
            IncrementalAlterConfigsRequest: self._change_settings,
        }

    def find_limits(self) -> dict[str, dict[str, str]]:
        """What is set, by name. Empty if nothing limits moves any more."""
        return {name: settings for (_, name), settings in self.settings_of.items() if settings}

    def ask_any(self, request: Any) -> Any:
        return self._handlers[type(request)](request)

    def ask_any_in_turn(self, requests: Iterable[Any]) -> Generator[Any, None, None]:
        for request in requests:
            yield self.ask_any(request)

    def ask_broker(self, node: int, request: Any) -> Any:
        if node in self.unreachable:
            raise self.unreachable[node]
        return self.ask_any(request)

    def connect_any(self) -> Any:
        return self

    def ask(self, request: Any) -> Any:
        return self.ask_any(request)

    def _describe(self, request: DescribeClusterRequest) -> DescribeClusterResponse:
        brokers = [DescribeClusterBroker(broker_id=broker, host="localhost", port=broker) for broker in BROKERS]
        return DescribeClusterResponse(cluster_id="stub", brokers=brokers)

    def _list_topics(self, request: MetadataRequest) -> MetadataResponse:
        topics: dict[str, MetadataResponseTopic] = {}
        for (topic, number), replicas in sorted(self.replicas.items()):
            current = [*dict.fromkeys((*self.targets.get(TopicPartition(topic, number), ()), *replicas))]
            topics.setdefault(topic, MetadataResponseTopic(name=topic)).partitions.append(
                MetadataResponsePartition(
                    partition_index=number, leader_id=replicas[0], replica_nodes=current, isr_nodes=list(replicas)
                )
            )
        return MetadataResponse(topics=list(topics.values()))

    def _list_moves(self, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
        topics = []
        for where, target in self.targets.items():
            before = self.replicas[where]
            move = OngoingPartitionReassignment(
                partition_index=where.partition,
                replicas=[*dict.fromkeys((*target, *before))],
                adding_replicas=[broker for broker in target if broker not in before],
                removing_replicas=[broker for broker in before if broker not in target],
            )
            topics.append(OngoingTopicReassignment(name=where.topic, partitions=[move]))
        return ListPartitionReassignmentsResponse(topics=topics)

    def _move(self, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        if self.moves_fail is not None:
            raise self.moves_fail
        if self.whole_errors and (error := self.whole_errors.pop(0)):
            return AlterPartitionReassignmentsResponse(error_code=error, error_message="ZooKeeper is away")
        assert sum(len(topic.partitions) for topic in request.topics) <= AT_ONCE_MAX
        answer = AlterPartitionReassignmentsResponse()
        for topic in request.topics:
            result = ReassignableTopicResponse(name=topic.name)
            answer.responses.append(result)
            for asked in topic.partitions:
                where = TopicPartition(topic.name, asked.partition_index)
                reason = self.refused.get(where)
                result.partitions.append(
                    ReassignablePartitionResponse(
                        partition_index=where.partition,
                        error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT if reason else 0,
                        error_message=reason,
                    )
                )
                if reason:
                    self.targets.pop(where, None)
                elif asked.replicas is None:
                    del self.targets[where]
                elif where in self.stuck:
                    self.targets[where] = tuple(asked.replicas)
                else:
                    self.targets.pop(where, None)
                    self.replicas[where] = tuple(asked.replicas)
        return answer

    def _describe_settings(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        results = []
        for asked in request.resources:
            known = self.settings_of[asked.resource_type, asked.resource_name]
            configs = [
                DescribeConfigsResourceResult(name=name, value=known.get(name, ""))
                for name in asked.configuration_keys or ()
            ]
            results.append(DescribeConfigsResult(resource_name=asked.resource_name, configs=configs))
        return DescribeConfigsResponse(results=results)

    def _change_settings(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        answer = IncrementalAlterConfigsResponse()
        for resource in request.resources:
            known = self.settings_of[resource.resource_type, resource.resource_name]
            for each in resource.configs:
                if each.value is None:
                    known.pop(each.name, None)
                else:
                    known[each.name] = each.value
            answer.responses.append(AlterConfigsResourceResponse(resource_name=resource.resource_name))
        return answer
