"""Hanging transactions: open in a partition, but unknown to their coordinator, so that nobody will end them.

The last stable offset stays where such a transaction began, and readers of committed records see nothing behind it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.client import Client, error_code
from ottla.errors import KafkaError
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

UNDECIDED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States of a transaction that its coordinator will still end."""

Led = Mapping[int, Mapping[str, Sequence[int]]]
"""By broker: the partitions of each topic that it leads."""


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    last_ms: int
    """The time of the producer's last batch."""
    coordinator_epoch: int


def list_open_transactions(client: Client, led: Led) -> list[OpenTransaction]:
    """All transactions that are open in these partitions, according to their leaders. Raises KafkaError."""
    found = []
    for broker, wanted in sorted(led.items()):
        asked = [TopicRequest(name=name, partition_indexes=list(numbers)) for name, numbers in wanted.items()]
        for answer in client.ask_broker(broker, DescribeProducersRequest(topics=asked)).topics:
            for part in answer.partitions:
                if part.error_code:
                    code = error_code(part.error_code)
                    reason = part.error_message or code.name
                    raise KafkaError(code, f"{answer.name}-{part.partition_index}: {reason}")
                found += [
                    OpenTransaction(
                        answer.name,
                        part.partition_index,
                        each.current_txn_start_offset,
                        each.producer_id,
                        each.producer_epoch,
                        each.last_timestamp,
                        each.coordinator_epoch,
                    )
                    for each in part.active_producers
                    if each.current_txn_start_offset >= 0
                ]
    return sorted(found)


def find_hanging(client: Client, led: Led, before_ms: int) -> list[OpenTransaction]:
    """Open transactions whose producers have not written since `before_ms` and that no coordinator will end."""
    old = [each for each in list_open_transactions(client, led) if each.last_ms < before_ms]
    if not old:
        return []
    known = _list_known(client, sorted({each.producer_id for each in old}))
    return [each for each in old if (each.producer_id, each.topic, each.partition) not in known]


def _list_known(client: Client, producer_ids: list[int]) -> set[tuple[int, str, int]]:
    """Producer id, topic and partition of every transaction that a coordinator will end."""
    known = set()
    for broker, listed in client.ask_each(ListTransactionsRequest(producer_id_filters=producer_ids)).items():
        names = [state.transactional_id for state in listed.transaction_states]
        if not names:
            continue
        described = client.ask_broker(broker, DescribeTransactionsRequest(transactional_ids=names))
        for state in described.transaction_states:
            if state.transaction_state in UNDECIDED:
                for topic in state.topics:
                    known |= {(state.producer_id, topic.topic, number) for number in topic.partitions}
    return known


def write_abort_marker(client: Client, hanging: OpenTransaction) -> int:
    """End a transaction in its partition. Returns the partition's error code."""
    marker = WritableTxnMarker(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=hanging.topic, partition_indexes=[hanging.partition])],
        coordinator_epoch=max(hanging.coordinator_epoch, 0),  # -1 if no coordinator has ended a transaction here yet
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    response: WriteTxnMarkersResponse = client.ask_leader(hanging.topic, hanging.partition, request)
    code: int = response.markers[0].topics[0].partitions[0].error_code
    return code
