"""Open transactions as partitions see them, compared with what the coordinators know; and the marker that ends one."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ottla.cli.client import CommandClient
from ottla.cli.command_error import CommandError
from ottla.errors import ErrorCode

UNDECIDED = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class Hanging(NamedTuple):
    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    last_ms: int
    coordinator_epoch: int


def open_producers(client: CommandClient, topics: Iterable[str], partitions: Collection[int] = ()) -> list[Hanging]:
    """Every producer with an open transaction, asked of the leader of each partition."""
    from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest

    led: dict[int, dict[str, list[int]]] = {}
    for name, topic in client.describe_topics(list(topics)).items():
        if topic is None:
            raise CommandError(f"there is no topic {name!r} at {client.address}")
        for partition in topic.partitions:
            if partition.leader is not None and (not partitions or partition.id in partitions):
                led.setdefault(partition.leader.id, {}).setdefault(name, []).append(partition.id)
    found = []
    for broker, wanted in sorted(led.items()):
        asked = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in wanted.items()]
        with client.connection(broker) as connection:
            response = connection.ask(DescribeProducersRequest(topics=asked))
        for answer in response.topics:
            for part in answer.partitions:
                if part.error_code:
                    reason = part.error_message or ErrorCode(part.error_code).name
                    raise CommandError(f"{answer.name}-{part.partition_index}: {reason}")
                for each in part.active_producers:
                    if each.current_txn_start_offset >= 0:
                        found.append(
                            Hanging(
                                answer.name,
                                part.partition_index,
                                each.current_txn_start_offset,
                                each.producer_id,
                                each.producer_epoch,
                                each.last_timestamp,
                                each.coordinator_epoch,
                            )
                        )
    return sorted(found)


def find_hanging(client: CommandClient, topics: Iterable[str], before_ms: int) -> list[Hanging]:
    """Those that wrote nothing since, and that no coordinator has open in that partition."""
    old = [each for each in open_producers(client, topics) if each.last_ms < before_ms]
    if not old:
        return []
    known = _known(client, sorted({each.producer_id for each in old}))
    return [each for each in old if (each.producer_id, each.topic, each.partition) not in known]


def _known(client: CommandClient, producer_ids: list[int]) -> set[tuple[int, str, int]]:
    """Producer, topic and partition of every transaction that a coordinator will end."""
    from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
    from ottla.wire.messages.list_transactions import ListTransactionsRequest

    known = set()
    for broker in sorted(client.brokers):
        with client.connection(broker) as connection:
            listed = connection.ask(ListTransactionsRequest(producer_id_filters=producer_ids)).transaction_states
            names = [state.transactional_id for state in listed]
            if not names:
                continue
            for state in connection.ask(DescribeTransactionsRequest(transactional_ids=names)).transaction_states:
                if state.transaction_state in UNDECIDED:
                    for topic in state.topics:
                        known |= {(state.producer_id, topic.topic, number) for number in topic.partitions}
    return known


def abort_marker(client: CommandClient, hanging: Hanging) -> int:
    """Write the marker that ends it into its partition; the partition's error code."""
    from ottla.wire.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

    topic = client.describe_topic(hanging.topic)
    leader = next(part.leader for part in topic.partitions if part.id == hanging.partition)
    marker = WritableTxnMarker(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=hanging.topic, partition_indexes=[hanging.partition])],
        coordinator_epoch=max(hanging.coordinator_epoch, 0),  # none has ever ended a transaction of it here
    )
    with client.connection(leader.id) as connection:
        response: WriteTxnMarkersResponse = connection.ask(WriteTxnMarkersRequest(markers=[marker]))
    code: int = response.markers[0].topics[0].partitions[0].error_code
    return code
