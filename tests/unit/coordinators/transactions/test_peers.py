"""The ports to other brokers: which broker is asked, and what the port of a single broker answers for others."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ottla.cluster import changes
from ottla.cluster.image import EMPTY
from ottla.coordinators.machine import Outcome, ProducerIdentity
from ottla.coordinators.transactions.errands import TransactionErrands
from ottla.coordinators.transactions.machine import WriteMarkers
from ottla.coordinators.transactions.peers import LocalCoordinator, LocalMarkers, MarkerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import TransactionMeter
from ottla.replication.transactions import TransactionMarker
from ottla.topic_partition import TopicPartition

TOPIC_ID = b"t" * 16
PARTITIONS = [TopicPartition("t", index) for index in range(4)]
MARKER = TransactionMarker(7, 1, True, 5, 2)
NOTHING: Any = None


class Peers:
    def __init__(self) -> None:
        self.asked: list[tuple[int, list[TopicPartition]]] = []

    def write_markers(
        self, broker_id: int, marker: TransactionMarker, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, MarkerResult]:
        assert marker == MARKER
        self.asked.append((broker_id, list(partitions)))
        return dict.fromkeys(partitions)


def test_each_leader_is_asked_once_for_its_partitions() -> None:
    # The metadata says who leads; a partition that is gone is asked of nobody.
    image = EMPTY.replay(
        1,
        [
            changes.CreateTopic(TOPIC_ID, "t"),
            *(changes.CreatePartition(TOPIC_ID, index, (1, 2), (1, 2), 1 + index % 2) for index in range(4)),
        ],
    )
    peers = Peers()
    errands = TransactionErrands(peers, NOTHING, lambda: image, TransactionMeter())
    gone = TopicPartition("gone", 0)
    turn = errands.perform(WriteMarkers("x", ProducerIdentity(7, 1), True, frozenset({*PARTITIONS, gone}), 2), 5)
    assert peers.asked == [(1, [PARTITIONS[0], PARTITIONS[2]]), (2, [PARTITIONS[1], PARTITIONS[3]])]
    assert not asyncio.iscoroutine(turn)

    class Machine:
        def complete(self, transactional_id: str, producer: ProducerIdentity, turn: object) -> Outcome:
            assert (transactional_id, producer) == ("x", ProducerIdentity(7, 1))
            return Outcome()

    machine: Any = Machine()
    assert callable(turn) and turn(machine, NOTHING) == Outcome()


def test_a_local_port_does_not_ask_other_brokers() -> None:
    # The answers are those after which the caller looks at the metadata again.
    results = LocalMarkers(1, NOTHING, NOTHING, NOTHING).write_markers(2, MARKER, PARTITIONS[:2])
    assert list(results) == PARTITIONS[:2]
    for result in results.values():
        assert isinstance(result, KafkaError) and result.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    local = LocalCoordinator(1, NOTHING)
    for asked in (local.add_partitions, local.find_missing_partitions):
        with pytest.raises(KafkaError) as refused:
            asyncio.run(asked(2, "x", ProducerIdentity(7, 1), PARTITIONS))
        assert refused.value.code is ErrorCode.NOT_COORDINATOR


class SlowPeers:
    """Broker 1 confirms nothing before the test says so; broker 2 fails the first attempts."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked: list[int] = []

    def write_markers(
        self, broker_id: int, marker: TransactionMarker, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, MarkerResult]:
        self.asked.append(broker_id)
        if broker_id == 1:
            return dict.fromkeys(partitions, self.confirmed)
        self.failures -= 1
        return dict.fromkeys(partitions, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) if self.failures >= 0 else None)


def test_a_leader_that_hangs_does_not_keep_the_others_from_their_markers() -> None:
    async def main() -> None:
        image = EMPTY.replay(
            1,
            [
                changes.CreateTopic(TOPIC_ID, "t"),
                changes.CreatePartition(TOPIC_ID, 0, (1,), (1,), 1),
                changes.CreatePartition(TOPIC_ID, 1, (2,), (2,), 2),
            ],
        )
        peers = SlowPeers(failures=2)
        errands = TransactionErrands(peers, NOTHING, lambda: image, TransactionMeter())
        errand = WriteMarkers("x", ProducerIdentity(7, 1), True, frozenset(PARTITIONS[:2]), 2)
        performed: Any = errands.perform(errand, 5)
        task = asyncio.get_running_loop().create_task(performed)
        while peers.asked != [1, 2, 2, 2]:
            assert not task.done()
            await asyncio.sleep(0.001)
        peers.confirmed.set_result(None)
        assert await task is not None

    asyncio.run(main())
