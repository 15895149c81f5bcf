"""What a test's cluster asks its brokers, also those in child processes."""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.broker import Broker


def count_alive(broker: Broker) -> int:
    """How many brokers are in the cluster, as this one knows it."""
    return len(broker.node.image.alive_brokers())


def has_created(broker: Broker, topic: str) -> bool:
    """Whether a broker knows the topic and holds every replica of it that belongs there."""
    image = broker.node.image.topic(topic)
    if image is None:
        return False
    here = broker.node.replicas.of_topic(topic)
    mine = [index for index, state in enumerate(image.partitions) if broker.node.broker_id in state.replicas]
    return all(index in here for index in mine)


QUESTIONS: Mapping[str, Callable[..., Any]] = {"count_alive": count_alive, "has_created": has_created}
"""By name, because a function cannot be sent to another process."""
