"""The metadata that a broker shows to clients when it knows that it was fenced, and has not replayed that entry yet."""

from dataclasses import replace

from ottla.cluster.changes import NO_LEADER
from ottla.cluster.entities import TopicImage
from ottla.cluster.image import Image


def withdraw(image: Image, broker_id: int) -> Image:
    """The image without the leaderships of a broker that was fenced. The new leaders are not known here.

    Epochs stay as they are: whatever a client learns from another broker is newer.
    """
    known: Image | None = image.derived.get(withdraw)
    if known is None:
        known = image.derived[withdraw] = _withdraw(image, broker_id)
    return known


def _withdraw(image: Image, broker_id: int) -> Image:
    broker = image.broker(broker_id)
    if broker is None or broker.fenced:
        return image
    led = [topic for topic in image.topics() if any(state.leader == broker_id for state in topic.partitions)]
    return replace(
        image,
        topics_by_name=image.topics_by_name.update({topic.name: _without_leader(topic, broker_id) for topic in led}),
        brokers=image.brokers.set(broker_id, replace(broker, fenced=True)),
    )


def _without_leader(topic: TopicImage, broker_id: int) -> TopicImage:
    return replace(
        topic,
        partitions=tuple(
            replace(state, leader=NO_LEADER) if state.leader == broker_id else state for state in topic.partitions
        ),
    )
