"""First and end offsets of many partitions, in one request to each leader. A partition without a leader is left out."""

from collections.abc import Iterable

from ottla.client.client import READ_UNCOMMITTED, Client
from ottla.client.connection import NotAuthenticated, Unreachable
from ottla.console.connections import ask_node
from ottla.console.facts.metadata import Snapshot
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

TIMEOUT_MS = 5_000


def list_offsets(
    client: Client,
    snapshot: Snapshot,
    wanted: Iterable[TopicPartition],
    spec: int,
    isolation: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offset of EARLIEST, LATEST or a timestamp for each partition whose leader answers."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    for where in wanted:
        topic = snapshot.topics.get(where.topic)
        leader = next((each.leader for each in topic.partitions if each.number == where.partition), -1) if topic else -1
        if leader >= 0:
            by_leader.setdefault(leader, {}).setdefault(where.topic, []).append(where.partition)
    found: dict[TopicPartition, int] = {}
    for leader, topics in by_leader.items():
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            timeout_ms=TIMEOUT_MS,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=each, timestamp=spec) for each in partitions],
                )
                for name, partitions in topics.items()
            ],
        )
        try:
            answer = ask_node(client, leader, request)
        except NotAuthenticated:
            raise
        except (Unreachable, KafkaError):
            continue
        for topic_answer in answer.topics:
            for each in topic_answer.partitions:
                if not each.error_code:
                    found[TopicPartition(topic_answer.name, each.partition_index)] = each.offset
    return found
