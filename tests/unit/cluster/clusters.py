"""Images of small clusters, step by step, for tests of deciders and elections."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from ottla.cluster import changes as change
from ottla.cluster import encoding
from ottla.cluster.changes import Change, ConfigResource, Endpoint
from ottla.cluster.decision import Decision
from ottla.cluster.image import EMPTY, Image, PartitionImage
from ottla.errors import ErrorCode, KafkaError

TOPIC_ID = b"t" * 16
ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)


def directory_of(broker_id: int) -> bytes:
    return bytes([broker_id]) * 16


def step(image: Image, *changes: Change) -> Image:
    return image.replay(image.version + 1, changes)


def decide(image: Image, decision: Decision[Any]) -> Image:
    """The image after a decision, which must be the canonical snapshot's image too."""
    if not decision.changes:
        return image
    image = image.replay(image.version + 1, encoding.decode(encoding.encode(decision.changes)))
    assert EMPTY.replay(image.version, image.snapshot()) == image
    return image


def registered(
    image: Image, broker_id: int, *, clean: bool = True, directories: Sequence[bytes] | None = None
) -> Image:
    kept = (directory_of(broker_id),) if directories is None else tuple(directories)
    return step(image, change.RegisterBroker(broker_id, kept, ENDPOINTS, clean=clean))


def unfenced(image: Image, broker_id: int) -> Image:
    return step(image, change.UnfenceBroker(broker_id, image.brokers[broker_id].epoch))


def started(image: Image, broker_id: int, *, clean: bool = True, directories: Sequence[bytes] | None = None) -> Image:
    return unfenced(registered(image, broker_id, clean=clean, directories=directories), broker_id)


def fenced(image: Image, *broker_ids: int) -> Image:
    for broker_id in broker_ids:
        image = step(image, change.FenceBroker(broker_id, image.brokers[broker_id].epoch))
    return image


def stopping(image: Image, broker_id: int) -> Image:
    return step(image, change.BeginShutdown(broker_id, image.brokers[broker_id].epoch))


def configured(image: Image, key: str, value: str | None, topic: str = "orders") -> Image:
    return step(image, change.SetConfig(ConfigResource.TOPIC, topic, key, value))


def cluster(
    brokers: int = 3,
    replicas: Sequence[int] = (1, 2, 3),
    *,
    min_isr: int = 1,
    unclean: bool = False,
    partitions: int = 1,
) -> Image:
    """Brokers 1, 2, ... with a topic whose partitions all have these replicas, all in sync."""
    image = EMPTY
    for broker_id in range(1, brokers + 1):
        image = started(image, broker_id)
    changes: list[Change] = [change.CreateTopic(TOPIC_ID, "orders")]
    members = tuple(replicas)
    changes += [change.CreatePartition(TOPIC_ID, index, members, members, members[0]) for index in range(partitions)]
    image = step(image, *changes)
    if min_isr != 1:
        image = configured(image, "min.insync.replicas", str(min_isr))
    return configured(image, "unclean.leader.election.enable", "true") if unclean else image


def partition(image: Image, index: int = 0) -> PartitionImage:
    return image.topics_by_name["orders"].partitions[index]


def with_isr(image: Image, isr: Iterable[int], index: int = 0) -> Image:
    state = partition(image, index)
    return step(image, change.ChangePartition(TOPIC_ID, index, state.partition_epoch, isr=tuple(isr)))


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code
