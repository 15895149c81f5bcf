"""Deciders for the features of the cluster: what all brokers have agreed to support, each at a level (KIP-584).

A broker supports some levels of a feature; the metadata says which one is in force. A new cluster gets the newest
levels that its first broker supports. Later levels change only on request. Only features that the brokers really have
are listed.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.cluster.changes import Change, ConfigResource, SetConfig, SetFeature, SupportedFeature
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.leadership import MIN_INSYNC_REPLICAS
from ottla.errors import ErrorCode, KafkaError

COMMON_MIN_ISR_FEATURE = "eligible.leader.replicas.version"

SUPPORTED: Mapping[str, range] = {
    COMMON_MIN_ISR_FEATURE: range(0, 2),
    "group.version": range(0, 2),
    "metadata.version": range(30, 31),
    "transaction.version": range(0, 3),
}
"""Levels by feature. metadata.version 30 is that of Apache Kafka 4.3; tools derive the release of a cluster from it.
group.version 1 adds groups of the consumer protocol (KIP-848); transaction.version 2 raises the epoch of a producer at
the end of every transaction (KIP-890). eligible.leader.replicas.version 1 makes min.insync.replicas a setting of the
cluster, so that every broker elects by the same number (KIP-966): it is always set for all brokers, never for one."""

FOUNDING_FEATURE = "metadata.version"
"""Every cluster has this feature. A cluster without it is new."""


class UpgradeType(IntEnum):
    """What a client allows, with Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A change of one feature. Level 0 removes it."""

    feature: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def list_supported_features() -> tuple[SupportedFeature, ...]:
    """What this broker registers with."""
    return tuple(SupportedFeature(name, levels[0], levels[-1]) for name, levels in sorted(SUPPORTED.items()))


def introduce_features(image: Image, min_insync_replicas: int) -> Decision[None]:
    """A new cluster gets all features, at their newest levels.

    `min_insync_replicas`: what this broker was started with.
    """
    if FOUNDING_FEATURE in image.features:
        return Decision([], None)
    changes: list[Change] = [SetFeature(name, levels[-1]) for name, levels in sorted(SUPPORTED.items()) if levels[-1]]
    return Decision(changes + _share_min_isr(image, min_insync_replicas), None)


def has_common_min_isr(image: Image) -> bool:
    """Whether min.insync.replicas is a setting of the cluster, which no broker may have of its own."""
    return image.features.get(COMMON_MIN_ISR_FEATURE, 0) > 0


def update_features(image: Image, updates: Sequence[FeatureUpdate], min_insync_replicas: int) -> Decision[None]:
    """Make all of the updates, or none of them."""
    levels = dict(image.features)
    for update in updates:
        _check(update, levels.get(update.feature, 0))
        _check_brokers(image, update)
        levels[update.feature] = update.level
    changes: list[Change] = [
        SetFeature(name, level) for name, level in sorted(levels.items()) if level != image.features.get(name, 0)
    ]
    if levels.get(COMMON_MIN_ISR_FEATURE, 0) > 0 and not has_common_min_isr(image):
        changes += _share_min_isr(image, min_insync_replicas)
    return Decision(changes, None)


def _share_min_isr(image: Image, min_insync_replicas: int) -> list[Change]:
    """Set min.insync.replicas for all brokers, if it is not set, and remove what single brokers have of their own."""
    changes: list[Change] = []
    if MIN_INSYNC_REPLICAS not in image.config(ConfigResource.BROKER, ""):
        changes.append(SetConfig(ConfigResource.BROKER, "", MIN_INSYNC_REPLICAS, str(min_insync_replicas)))
    for broker in image.all_brokers():
        if MIN_INSYNC_REPLICAS in image.config(ConfigResource.BROKER, str(broker.id)):
            changes.append(SetConfig(ConfigResource.BROKER, str(broker.id), MIN_INSYNC_REPLICAS, None))
    return changes


def _check(update: FeatureUpdate, current: int) -> None:
    supported = SUPPORTED.get(update.feature)
    if supported is None:
        problem = "this broker does not have that feature"
    elif update.upgrade_type not in tuple(UpgradeType):
        problem = f"there is no upgrade type {update.upgrade_type}"
    elif update.level not in supported:
        problem = f"this broker supports {_describe_levels(supported)}"
    elif update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        problem = f"level {current} is in force, and a lower one must be requested as a downgrade"
    elif update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        problem = f"level {current} is in force, and a higher one is no downgrade"
    else:
        return
    message = f"no feature was changed: {update.feature!r} cannot be at level {update.level}: {problem}"
    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _check_brokers(image: Image, update: FeatureUpdate) -> None:
    """Every registered broker must support the level, also one that is away: it would not come back in."""
    for broker in image.all_brokers():
        supported = {feature.name: feature for feature in broker.features}.get(update.feature)
        if supported is not None and not supported.lowest <= update.level <= supported.highest:
            problem = f"broker {broker.id} supports {_describe_levels(range(supported.lowest, supported.highest + 1))}"
        elif supported is None and broker.features and update.level > 0:
            problem = f"broker {broker.id} does not have that feature; upgrade or unregister it first"
        else:
            continue
        message = f"no feature was changed: {update.feature!r} cannot be at level {update.level}: {problem}"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _describe_levels(levels: range) -> str:
    return f"level {levels[0]} only" if len(levels) == 1 else f"levels {levels[0]} to {levels[-1]}"
