"""A broker without the store learns from the metadata of others whether it was fenced, and from nothing else."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.isolation import was_fenced
from ottla.replication.peers import PeerUnavailable
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID, OTHER_ID = b"t" * 16, b"o" * 16
OWN_EPOCH = 5


class FakePeers:
    """Answers for the other brokers."""

    def __init__(self, answers: dict[int, MetadataResponse]) -> None:
        self.answers = answers
        self.asked: list[int] = []

    async def request(self, broker_id: int, message: MetadataRequest, *, timeout_s: float) -> MetadataResponse:
        self.asked.append(broker_id)
        assert message.topics is not None and [topic.topic_id for topic in message.topics] == [TOPIC_ID]
        if broker_id not in self.answers:
            raise PeerUnavailable("cut off")
        return self.answers[broker_id]


def metadata(
    listed: Sequence[int], leader_epoch: int, topic_id: bytes = TOPIC_ID, offline: Sequence[int] = ()
) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=listed[-1], leader_epoch=leader_epoch, offline_replicas=list(offline)
    )
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=each) for each in listed],
        topics=[MetadataResponseTopic(topic_id=topic_id, partitions=[partition])],
    )


def ask(answers: dict[int, MetadataResponse], *, is_leader: bool = True) -> tuple[bool, list[int]]:
    """Whether broker 1 was fenced, and whom it has asked."""
    image: Any = SimpleNamespace(alive_brokers=lambda: [SimpleNamespace(id=each) for each in (1, 2, 3)])
    partition: Any = SimpleNamespace(topic_id=TOPIC_ID, index=0, leader_epoch=OWN_EPOCH, is_leader=is_leader)
    peers: Any = FakePeers(answers)
    return asyncio.run(was_fenced(1, image, [partition], peers)), peers.asked


def test_newer_metadata_without_this_broker_says_that_it_was_fenced() -> None:
    assert ask({2: metadata([1, 2, 3], OWN_EPOCH), 3: metadata([2, 3], OWN_EPOCH + 1)}) == (True, [2, 3])


def test_newer_metadata_in_which_its_replica_is_offline_says_so_too() -> None:
    # The list of brokers shows those that were fenced a moment ago.
    assert ask({3: metadata([1, 2, 3], OWN_EPOCH + 1, offline=[1])}) == (True, [2, 3])


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, "nobody answers"),
        ({2: metadata([1, 2, 3], OWN_EPOCH)}, "the store is away for all"),
        ({2: metadata([2, 3], OWN_EPOCH)}, "from metadata before this broker registered, and without an election"),
        ({2: metadata([2, 3], OWN_EPOCH - 2)}, "from metadata that is older than this broker's"),
        ({2: metadata([1, 2, 3], OWN_EPOCH + 1)}, "the partition has moved, and this broker still serves"),
        ({2: metadata([1, 2, 3], OWN_EPOCH + 1, offline=[2])}, "the replica of another broker is offline"),
        ({2: metadata([1, 2, 3], OWN_EPOCH, offline=[1])}, "from metadata before this broker registered"),
        ({2: metadata([2, 3], OWN_EPOCH + 1, OTHER_ID)}, "another topic of the same name"),
    ],
)
def test_no_other_answer_does(answers: dict[int, MetadataResponse], why: str) -> None:
    assert not ask(answers)[0], why


def test_a_broker_that_leads_nothing_asks_nobody() -> None:
    assert ask({2: metadata([2, 3], OWN_EPOCH + 1)}, is_leader=False) == (False, [])
