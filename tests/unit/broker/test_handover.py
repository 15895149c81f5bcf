"""A broker that stops waits until the others name the new leaders, but for none that is gone or does not answer."""

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.broker.handover import MOVING_S, PATIENCE_S, POLL_S, let_others_know, list_led
from ottla.cluster.image import PartitionImage
from ottla.replication.peers import PeerUnavailable
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.simulation.loop import simulate

TOPIC_ID = b"t" * 16
OLD, NEW = 4, 5
"""The leader epochs before and after the handover."""
SLOW_S = 0.3


class FakePeers:
    """Other brokers that replay the handover when their time has come. One that is not listed is gone."""

    def __init__(self, replayed_at: dict[int, float]) -> None:
        self.replayed_at = replayed_at
        self.asked: list[int] = []

    async def request(self, broker_id: int, message: MetadataRequest, *, timeout_s: float) -> MetadataResponse:
        self.asked.append(broker_id)
        assert message.topics is not None and [topic.topic_id for topic in message.topics] == [TOPIC_ID]
        if broker_id not in self.replayed_at:
            raise PeerUnavailable("refused")
        epoch = NEW if asyncio.get_running_loop().time() >= self.replayed_at[broker_id] else OLD
        partition = MetadataResponsePartition(partition_index=0, leader_epoch=epoch)
        other = MetadataResponsePartition(partition_index=1, leader_epoch=0)
        return MetadataResponse(topics=[MetadataResponseTopic(topic_id=TOPIC_ID, partitions=[partition, other])])


def image(leader: int, epoch: int) -> Any:
    """Partition 0 as given; partition 1 belongs to broker 3 all the time."""
    partitions = (PartitionImage((1, 2, 3), (1, 2, 3), leader, epoch), PartitionImage((3,), (3,), 3, 9))
    topic = SimpleNamespace(id=TOPIC_ID, partitions=partitions)
    return SimpleNamespace(
        topics=lambda: [topic],
        topic_by_id=lambda topic_id: topic if topic_id == TOPIC_ID else None,
        alive_brokers=lambda: [SimpleNamespace(id=each) for each in (1, 2, 3)],
    )


def hand_over(replayed_at: dict[int, float], after: Any) -> tuple[float, list[int]]:
    """How long broker 1 waits until it closes its connections, and whom it has asked."""
    led = list_led(image(1, OLD), 1)
    assert led == [(TOPIC_ID, 0)]
    peers: Any = FakePeers(replayed_at)

    async def wait() -> float:
        began = asyncio.get_running_loop().time()
        await let_others_know(1, after, led, peers)
        return asyncio.get_running_loop().time() - began

    return simulate(wait()), peers.asked


def test_the_slowest_of_the_others_is_waited_for() -> None:
    waited, asked = hand_over({2: 0.0, 3: SLOW_S}, image(2, NEW))
    assert SLOW_S + MOVING_S <= waited <= SLOW_S + 2 * POLL_S + MOVING_S
    assert asked.count(2) == 1 and asked.count(3) > 2


def test_a_broker_that_is_gone_is_not_waited_for() -> None:
    waited, asked = hand_over({2: 0.0}, image(2, NEW))
    assert waited <= MOVING_S + POLL_S and asked == [2, 3]


def test_a_broker_that_replays_nothing_is_waited_for_only_so_long() -> None:
    waited, _ = hand_over({2: 0.0, 3: 1e9}, image(2, NEW))
    assert PATIENCE_S + MOVING_S <= waited <= PATIENCE_S + MOVING_S + POLL_S


def test_a_broker_that_handed_nothing_over_asks_nobody() -> None:
    assert hand_over({}, image(1, OLD)) == (0.0, []), "nobody else could lead"
    assert hand_over({}, image(-1, NEW)) == (0.0, []), "there is no leader to move to"
    deleted = image(2, NEW)
    deleted.topic_by_id = lambda topic_id: None
    assert hand_over({}, deleted) == (0.0, []), "the topic was deleted meanwhile"
