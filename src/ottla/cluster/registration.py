"""Deciders for brokers that join and leave the cluster."""

from dataclasses import dataclass

from ottla.cluster.changes import (
    BecomeController,
    Change,
    Endpoint,
    FenceBroker,
    RegisterBroker,
    SetClusterId,
    SupportedFeature,
    UnfenceBroker,
)
from ottla.cluster.image import BrokerImage, Image
from ottla.cluster.metadata import Decision
from ottla.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker registers with.

    `stopped_at_epoch` is from its clean-shutdown file, None if there is none. `previous_epoch`: the epoch at which the
    same process registered before, if it did.
    """

    broker_id: int
    directories: tuple[bytes, ...]
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    stopped_at_epoch: int | None = None
    features: tuple[SupportedFeature, ...] = ()
    incarnation: bytes = b""
    previous_epoch: int | None = None


def register_broker(image: Image, registration: BrokerRegistration, cluster_id: str) -> Decision[int]:
    """Register a broker. Returns its broker epoch. A new cluster gets `cluster_id`.

    Replay of this change removes the broker from every ISR; the broker leads nothing until it is unfenced.
    """
    changes: list[Change] = []
    if image.cluster_id is None:
        changes.append(SetClusterId(cluster_id))
    elif image.cluster_id != cluster_id:
        message = f"this is cluster {image.cluster_id}, the data directory belongs to cluster {cluster_id}"
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    before = image.broker(registration.broker_id)
    if before is not None and not before.fenced and not set(before.directories) & set(registration.directories):
        message = f"another broker with id {registration.broker_id} and another data directory is in the cluster"
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
    clean = before is None or before.epoch in (registration.stopped_at_epoch, registration.previous_epoch)
    changes.append(
        RegisterBroker(
            broker_id=registration.broker_id,
            directories=registration.directories,
            endpoints=registration.endpoints,
            rack=registration.rack,
            clean=clean,
            features=registration.features,
            incarnation=registration.incarnation,
        )
    )
    return Decision(changes, image.version + 1)


def unfence_broker(image: Image, broker_id: int, broker_epoch: int) -> Decision[None]:
    """Let a broker serve that has replayed its own registration and opened its logs."""
    broker = require_current(image, broker_id, broker_epoch)
    return Decision([UnfenceBroker(broker_id, broker_epoch)] if broker.fenced else [], None)


def fence_broker(image: Image, broker_id: int, broker_epoch: int) -> Decision[None]:
    """Take a broker out of service that stops or is gone."""
    broker = require_current(image, broker_id, broker_epoch)
    return Decision([] if broker.fenced else [FenceBroker(broker_id, broker_epoch)], None)


def become_controller(image: Image, broker_id: int, broker_epoch: int) -> Decision[int]:
    """Make the broker the controller. Returns the controller epoch."""
    require_current(image, broker_id, broker_epoch)
    return Decision([BecomeController(broker_id, broker_epoch)], image.version + 1)


def require_current(image: Image, broker_id: int, broker_epoch: int) -> BrokerImage:
    """The broker, if this is still its epoch: a process that another has replaced must not decide anything."""
    broker = image.broker(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        message = f"broker {broker_id} registered again at epoch {broker.epoch}; epoch {broker_epoch} is over"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, message)
    return broker
