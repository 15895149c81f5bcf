"""An image as a list of changes, and its digest.

A snapshot replays from the empty image into an equal one. It is canonical: equal images give equal snapshots, so two
brokers that replayed the same entries can compare digests. It ends with its own digest, which replay verifies: a
version of Ottla that reads a snapshot in another way than it was meant stops there.
"""

import hashlib
import sys
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Union

from ottla.cluster import changes as change
from ottla.cluster.changes import NO_LEADER, Change, ConfigResource, quota_order
from ottla.cluster.encoding import encode_plain
from ottla.cluster.entities import TopicImage
from ottla.cluster.identities import snapshot_identities
from ottla.cluster.leadership import ELIGIBLE_LEADER_REPLICAS
from ottla.security.acls import CHECKSUM_BYTES

if TYPE_CHECKING:
    from ottla.cluster.image import Image
    from ottla.cluster.replay import MutableImage

DIGEST_BYTES = 16


def write_snapshot(image: "Image") -> list[Change]:
    """Changes that replay from the empty image into this one."""
    changes = list(_list_cluster_changes(image))
    changes.extend(map(change.AddAcl, image.acls))
    for name in sorted(image.topics_by_name):
        changes.extend(_list_topic_changes(image, image.topics_by_name[name]))
    changes.append(change.VerifyDigest(compute_digest(image)))
    return changes


def compute_digest(image: Union["Image", "MutableImage"]) -> bytes:
    """The digest of everything in the image but its version. Digests of topics are kept while they do not change, and
    that of the ACLs is kept up to date with each of them."""
    whole = hashlib.sha256(encode_plain(_list_cluster_changes(image)))
    if image.acls:
        whole.update(image.acls.checksum.to_bytes(CHECKSUM_BYTES, "big"))
    for name in sorted(image.topics_by_name):
        whole.update(_hash_topic(image, image.topics_by_name[name]))
    return whole.digest()[:DIGEST_BYTES]


def _hash_topic(image: Union["Image", "MutableImage"], topic: TopicImage) -> bytes:
    config = image.configs.get((ConfigResource.TOPIC, topic.name))
    known: tuple[object, bytes] | None = topic.derived.get(_hash_topic)
    if known is None or known[0] is not config:
        content = hashlib.sha256(encode_plain(_list_topic_settings(image, topic)))
        content.update(_describe_partitions(topic))
        known = (config, content.digest())
        topic.derived[_hash_topic] = known
    return known[1]


def _describe_partitions(topic: TopicImage) -> bytes:
    """The partitions as numbers, which takes a fraction of the time of their encoding.

    What most partitions do not have is left out: a field that is added some day changes no digest before it is used.
    """
    numbers = array("q")
    for state in topic.partitions:
        numbers.extend((len(state.replicas), *state.replicas, len(state.isr), *state.isr))
        numbers.extend((state.leader, state.leader_epoch, state.partition_epoch))
        if state.elr:
            numbers.extend((-2, *state.elr))
        if state.last_known_leader != NO_LEADER:
            numbers.extend((-3, state.last_known_leader))
        if state.recovering:
            numbers.append(-4)
        if state.adding or state.removing:
            numbers.extend((-5, *state.adding, -6, *state.removing))
        if state.offline:
            numbers.extend((-7, *state.offline))
        numbers.append(-8)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _list_cluster_changes(image: Union["Image", "MutableImage"]) -> Iterator[Change]:
    """Everything but ACLs and topics, which come after their brokers and after the settings that they depend on."""
    if image.cluster_id is not None:
        yield change.SetClusterId(image.cluster_id)
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        yield change.RegisterBroker(
            broker_id=broker.id,
            directories=broker.directories,
            endpoints=broker.endpoints,
            rack=broker.rack,
            clean=broker.clean,
            epoch=broker.epoch,
            features=broker.features,
            incarnation=broker.incarnation,
            lost_directories=broker.lost_directories,
            cordoned=broker.cordoned,
        )
        if not broker.fenced:
            yield change.UnfenceBroker(broker.id, broker.epoch)
        if broker.shutting_down:
            yield change.BeginShutdown(broker.id, broker.epoch)
    if image.election_rules != ELIGIBLE_LEADER_REPLICAS:
        yield change.SetElectionRules(image.election_rules)
    if image.largest_unregistered >= 0:
        yield change.RememberUnregistered(image.largest_unregistered)
    if image.controller is not None:
        controller = image.controller
        yield change.BecomeController(controller.broker_id, controller.broker_epoch, controller.epoch)
    for name in sorted(image.features):
        yield change.SetFeature(name, image.features[name])
    if image.next_producer_id:
        yield change.ReserveProducerIds(-1, -1, 0, image.next_producer_id)
    for resource, name in sorted(image.configs):
        if resource is not ConfigResource.TOPIC:
            yield from _list_config_changes(image, resource, name)
    for entity in sorted(image.quotas, key=quota_order):
        for key, value in sorted(image.quotas[entity].items()):
            yield change.SetQuota(entity, key, value)
    yield from snapshot_identities(image.identities)


def _list_topic_settings(image: Union["Image", "MutableImage"], topic: TopicImage) -> Iterator[Change]:
    yield change.CreateTopic(topic.id, topic.name)
    if (ConfigResource.TOPIC, topic.name) in image.configs:
        yield from _list_config_changes(image, ConfigResource.TOPIC, topic.name)


def _list_topic_changes(image: Union["Image", "MutableImage"], topic: TopicImage) -> Iterator[Change]:
    yield from _list_topic_settings(image, topic)
    for number, partition in enumerate(topic.partitions):
        yield change.CreatePartition(
            topic_id=topic.id,
            partition=number,
            replicas=partition.replicas,
            isr=partition.isr,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            recovering=partition.recovering,
            elr=partition.elr,
            last_known_leader=partition.last_known_leader,
            adding=partition.adding,
            removing=partition.removing,
            offline=partition.offline,
        )


def _list_config_changes(
    image: Union["Image", "MutableImage"], resource: ConfigResource, name: str
) -> Iterator[change.SetConfig]:
    config = image.configs[resource, name]
    for key in sorted(config):
        yield change.SetConfig(resource, name, key, config[key])
