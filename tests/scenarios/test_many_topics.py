"""Metadata of a cluster with very many topics, of which this broker has replicas of hardly any."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.cluster.changes import NO_LEADER, Change, CreatePartition, CreateTopic, Endpoint, RegisterBroker
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataRequest
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.samples import sample_size
from tests.scenarios.client_calls import append, create_topic, describe_topic

MANY = sample_size(2_000, 10_000)
OF_ONE_ENTRY = 2_000
ELSEWHERE = 99
"""A registered broker that does not run. Its topics are in the metadata, and need no files here."""


def topics_elsewhere(numbers: Sequence[int]) -> list[Change]:
    changes: list[Change] = []
    for number in numbers:
        topic_id = b"many" + number.to_bytes(12)
        changes.append(CreateTopic(topic_id, f"topic.{number:06}"))
        changes.append(CreatePartition(topic_id, 0, (ELSEWHERE,), (ELSEWHERE,), NO_LEADER))
    return changes


def as_decided(changes: Sequence[Change], image: Image) -> Decision[None]:
    return Decision(changes, None)


def ask(port: int) -> None:
    """Ask for all topics, for one, and for a new one, and use the new one."""
    with RawClient("127.0.0.1", port, timeout_s=PATIENCE_S) as client:
        for version in (1, 9, 13):
            answer = client.request(MetadataRequest(topics=None), version)
            assert [each.name for each in answer.topics] == [f"topic.{number:06}" for number in range(MANY)]
            assert [broker.node_id for broker in answer.brokers] == [1]
        assert client.request(MetadataRequest(topics=[]), 13).topics == []
        one = describe_topic(client, f"topic.{MANY - 1:06}")
        assert (one.error_code, one.partitions[0].error_code) == (0, ErrorCode.LEADER_NOT_AVAILABLE)
        assert create_topic(client, "topic_000001").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert create_topic(client, "another").error_code == 0
        assert append(client, "another", b"x") == 0


def test_metadata_of_many_thousand_topics(tmp_path: Path) -> None:
    # Every form of the answer is complete. A new topic among them can be created and used, and all topics are there
    # after a restart.
    async def serve() -> None:
        config = BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "1"})
        broker = Broker(config, str(tmp_path))
        await broker.start()
        metadata = broker.node.metadata
        neighbour = RegisterBroker(ELSEWHERE, (bytes(16),), (Endpoint("PLAINTEXT", "elsewhere", 9092, "PLAINTEXT"),))
        await metadata.change(partial(as_decided, [neighbour]))
        for first in range(0, MANY, OF_ONE_ENTRY):
            changes = topics_elsewhere(range(first, first + OF_ONE_ENTRY))
            await metadata.change(partial(as_decided, changes))
        await asyncio.to_thread(ask, broker.ports["PLAINTEXT"])
        await broker.stop(5)
        again = Broker(config, str(tmp_path))
        await again.start()
        assert len(again.node.image.topics_by_name) == MANY + 1
        await again.stop(5)

    asyncio.run(serve())
