"""Deciders for brokers that join and leave the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.cluster.changes import (
    BecomeController,
    BeginShutdown,
    Change,
    ConfigResource,
    Endpoint,
    FenceBroker,
    RegisterBroker,
    SetClusterId,
    SetConfig,
    SupportedFeature,
    UnfenceBroker,
    UnregisterBroker,
)
from ottla.cluster.decision import Decision
from ottla.cluster.image import BrokerImage, Image
from ottla.cluster.leadership import SETTINGS as ELECTION_SETTINGS
from ottla.errors import ErrorCode, KafkaError

DIRECTORIES_MAX = 1000


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What a broker registers with.

    `stopped_at_epoch`: the epoch of the broker's last run, if it still has everything that it had written: after a
    clean shutdown, or if only the process was killed. `previous_epoch`: the epoch at which the same process registered
    before, if it did. `election_settings`: settings that the broker was started with and that elections depend on, by
    name. The first broker that gives one sets it for the cluster, because every broker must elect by the same settings.
    `cordoned`: the broker was started with all its directories cordoned.
    """

    broker_id: int
    directories: tuple[bytes, ...]
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    stopped_at_epoch: int | None = None
    features: tuple[SupportedFeature, ...] = ()
    incarnation: bytes = b""
    previous_epoch: int | None = None
    election_settings: Mapping[str, str] = field(default_factory=dict)
    cordoned: bool = False
    imported: tuple[Change, ...] = ()
    """A snapshot of the metadata of a broker that ran alone. It becomes that of the cluster if the cluster is new."""


def register_broker(
    image: Image, registration: BrokerRegistration, cluster_id: str, *, is_alone: bool = False
) -> Decision[int]:
    """Register a broker. Returns its broker epoch. A new cluster gets `cluster_id`.

    Replay of this change removes the broker from every ISR; the broker leads nothing until it is unfenced. `is_alone`:
    the store says that no other process with this broker id lives, so an earlier registration is void.
    """
    changes: list[Change] = []
    version = image.version + 1
    if image.cluster_id is None and registration.imported:
        changes.extend(registration.imported)
        image = image.replay(version, registration.imported)
    if image.cluster_id is None:
        changes.append(SetClusterId(cluster_id))
    elif image.cluster_id != cluster_id:
        message = f"this is cluster {image.cluster_id}, the data directory belongs to cluster {cluster_id}"
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    before = image.broker(registration.broker_id)
    _check_directories(image, registration)
    _check_features(image, registration)
    has_other_directories = before is not None and not set(before.directories) & set(registration.directories)
    if before is not None and not before.fenced and has_other_directories and not is_alone:
        message = f"another broker with id {registration.broker_id} and another data directory is in the cluster"
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)
    clean = before is None or _has_kept_everything(before, registration)
    changes.append(
        RegisterBroker(
            broker_id=registration.broker_id,
            directories=registration.directories,
            endpoints=registration.endpoints,
            rack=registration.rack,
            clean=clean,
            features=registration.features,
            incarnation=registration.incarnation,
            cordoned=registration.cordoned,
        )
    )
    common = image.config(ConfigResource.BROKER, "")
    for key in sorted(registration.election_settings):
        if key in ELECTION_SETTINGS and key not in common:
            changes.append(SetConfig(ConfigResource.BROKER, "", key, registration.election_settings[key]))
    return Decision(changes, version)


def _has_kept_everything(before: BrokerImage, registration: BrokerRegistration) -> bool:
    """Whether the broker stopped cleanly after its last registration, or is the same process still.

    A process whose registration got no answer does not know its epoch, but its incarnation is in the image.
    """
    if before.epoch in (registration.stopped_at_epoch, registration.previous_epoch):
        return True
    return registration.incarnation != b"" and registration.incarnation == before.incarnation


def _check_directories(image: Image, registration: BrokerRegistration) -> None:
    """A directory belongs to one broker: a copy of it must not register as another one."""
    directories = registration.directories
    if not directories or len(directories) > DIRECTORIES_MAX:
        problem = f"{len(directories)} data directories; there must be 1 to {DIRECTORIES_MAX}"
    elif len(set(directories)) != len(directories):
        problem = "two data directories have the same id"
    else:
        taken = [
            broker.id
            for broker in image.all_brokers()
            if broker.id != registration.broker_id and not set(directories).isdisjoint(broker.directories)
        ]
        if not taken:
            return
        problem = f"a data directory with the same id belongs to broker {taken[0]}; is it a copy?"
    raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"broker {registration.broker_id} cannot register: {problem}")


def _check_features(image: Image, registration: BrokerRegistration) -> None:
    """A broker that does not know what the cluster has agreed on would replay or serve it wrongly."""
    if not registration.features:
        return
    supported = {feature.name: feature for feature in registration.features}
    for name in sorted(image.features):
        level, feature = image.features[name], supported.get(name)
        if feature is None or not feature.lowest <= level <= feature.highest:
            message = f"this broker does not support level {level} of {name}, which the cluster uses"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{message}; run the version of the other brokers")


def unfence_broker(image: Image, broker_id: int, broker_epoch: int) -> Decision[None]:
    """Let a broker serve that has replayed its own registration and opened its logs."""
    broker = require_current(image, broker_id, broker_epoch)
    return Decision([UnfenceBroker(broker_id, broker_epoch)] if broker.fenced else [], None)


def fence_broker(image: Image, broker_id: int, broker_epoch: int) -> Decision[None]:
    """Take a broker out of service that stops or is gone."""
    broker = require_current(image, broker_id, broker_epoch)
    return Decision([] if broker.fenced else [FenceBroker(broker_id, broker_epoch)], None)


def begin_shutdown(image: Image, broker_id: int, broker_epoch: int) -> Decision[None]:
    """Hand over what a broker leads that is about to stop. `count_leaderships` says what nobody could take over."""
    broker = require_current(image, broker_id, broker_epoch)
    return Decision([BeginShutdown(broker_id, broker_epoch)] if broker.serves else [], None)


def unregister_broker(image: Image, broker_id: int) -> Decision[None]:
    """Remove a broker that is not coming back. Its replicas stay assigned to it until they are reassigned."""
    broker = image.broker(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if not broker.fenced:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} is running: stop it before you unregister it")
    return Decision([UnregisterBroker(broker_id)], None)


def count_leaderships(image: Image, broker_id: int) -> int:
    """How many partitions the broker leads."""
    return sum(state.leader == broker_id for topic in image.topics() for state in topic.partitions)


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
