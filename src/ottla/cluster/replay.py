"""The effect of each change on the metadata: one function per kind, which checks the change before it applies it.

The functions work on a `MutableImage`: the maps of the old image, which are replaced one by one. Nobody else sees it
before all changes of an entry are applied.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from immutables import Map

from ottla.cluster import changes as change
from ottla.cluster.changes import NO_LEADER, ZERO_ID, Change, ConfigResource
from ottla.cluster.entities import BrokerImage, ControllerImage, PartitionImage, TopicImage


class ReplayError(ValueError):
    """A change does not fit the image: the log is corrupt, or the code that wrote it is wrong."""


@dataclass(slots=True)
class MutableImage:
    """An image under construction. Its fields are those of `Image`, in the same order."""

    version: int
    cluster_id: str | None
    controller: ControllerImage | None
    next_producer_id: int
    brokers: Map[int, BrokerImage]
    topics_by_name: Map[str, TopicImage]
    topic_names: Map[bytes, str]
    normalized_names: Map[str, str]
    configs: Map[tuple[ConfigResource, str], Map[str, str]]
    features: Map[str, int]

    def topic(self, topic_id: bytes) -> TopicImage:
        name = self.topic_names.get(topic_id)
        if name is None:
            raise ReplayError(f"no topic has id {topic_id.hex()}")
        return self.topics_by_name[name]

    def put_topic(self, topic: TopicImage) -> None:
        self.topics_by_name = self.topics_by_name.set(topic.name, topic)

    def require_broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise ReplayError(f"broker {broker_id} is not registered")
        if broker.epoch != broker_epoch:
            raise ReplayError(f"broker {broker_id} is at epoch {broker.epoch}, not {broker_epoch}")
        return broker

    def step_down(self, broker_id: int) -> None:
        """A broker that leaves, or comes back with a new epoch, is no longer the controller."""
        if self.controller is not None and self.controller.broker_id == broker_id:
            self.controller = None

    def serves(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced


def normalize(name: str) -> str:
    """A topic name as in Kafka's metrics, which cannot distinguish '.' from '_'."""
    return name.replace(".", "_")


def replay(draft: MutableImage, changes: Iterable[Change]) -> None:
    """Apply the changes of entry `draft.version`, in order."""
    for item in changes:
        try:
            _RULES[type(item)](draft, item)
        except ReplayError as error:
            raise ReplayError(f"metadata entry {draft.version}, {type(item).__name__}: {error}") from None


def _set_cluster_id(draft: MutableImage, item: change.SetClusterId) -> None:
    if draft.cluster_id is not None:
        raise ReplayError(f"this is already cluster {draft.cluster_id}")
    draft.cluster_id = item.cluster_id


def _register_broker(draft: MutableImage, item: change.RegisterBroker) -> None:
    epoch = draft.version if item.epoch < 0 else item.epoch
    before = draft.brokers.get(item.broker_id)
    if item.broker_id < 0 or (before is not None and before.epoch >= epoch):
        raise ReplayError(f"broker {item.broker_id} cannot register at epoch {epoch}")
    broker = BrokerImage(item.broker_id, epoch, item.directory_id, item.endpoints, item.rack, True, item.clean)
    draft.brokers = draft.brokers.set(item.broker_id, broker)
    draft.step_down(item.broker_id)
    unclean = not item.clean
    _change_partitions(draft, lambda partition: _remove_broker(draft, partition, item.broker_id, unclean))


def _fence_broker(draft: MutableImage, item: change.FenceBroker) -> None:
    broker = draft.require_broker(item.broker_id, item.broker_epoch)
    draft.brokers = draft.brokers.set(broker.id, replace(broker, fenced=True))
    draft.step_down(broker.id)
    _change_partitions(draft, lambda partition: _remove_broker(draft, partition, item.broker_id, False))


def _unfence_broker(draft: MutableImage, item: change.UnfenceBroker) -> None:
    broker = draft.require_broker(item.broker_id, item.broker_epoch)
    draft.brokers = draft.brokers.set(broker.id, replace(broker, fenced=False))
    _change_partitions(draft, lambda partition: _restore_leader(partition, item.broker_id))


def _unregister_broker(draft: MutableImage, item: change.UnregisterBroker) -> None:
    broker = draft.brokers.get(item.broker_id)
    if broker is None or not broker.fenced:
        raise ReplayError(f"broker {item.broker_id} is not a fenced broker")
    draft.brokers = draft.brokers.delete(item.broker_id)


def _change_partitions(draft: MutableImage, rule: Callable[[PartitionImage], PartitionImage]) -> None:
    """Apply a rule to every partition. Topics that it does not change stay the same object."""
    changed: list[TopicImage] = []
    for topic in draft.topics_by_name.values():
        partitions = tuple(map(rule, topic.partitions))
        if any(new is not old for new, old in zip(partitions, topic.partitions, strict=True)):
            changed.append(replace(topic, partitions=partitions))
    with draft.topics_by_name.mutate() as topics:
        for topic in changed:
            topics[topic.name] = topic
        draft.topics_by_name = topics.finish()


def _remove_broker(draft: MutableImage, partition: PartitionImage, broker_id: int, unclean: bool) -> PartitionImage:
    """The partition without a broker in its ISR. The last in-sync replica stays, because no other may lead."""
    if broker_id not in partition.isr:
        return partition
    isr = tuple(member for member in partition.isr if member != broker_id)
    last = not isr
    if partition.leader == broker_id:
        leader = next((member for member in partition.replicas if member in isr and draft.serves(member)), NO_LEADER)
    else:
        leader = partition.leader
    marked = partition.unclean or (last and unclean)
    if last and leader == partition.leader and marked == partition.unclean:
        return partition
    return PartitionImage(
        replicas=partition.replicas,
        isr=partition.isr if last else isr,
        leader=leader,
        leader_epoch=partition.leader_epoch + (leader != partition.leader),
        partition_epoch=partition.partition_epoch + 1,
        unclean=marked,
    )


def _restore_leader(partition: PartitionImage, broker_id: int) -> PartitionImage:
    if partition.leader != NO_LEADER or broker_id not in partition.isr:
        return partition
    return PartitionImage(
        replicas=partition.replicas,
        isr=partition.isr,
        leader=broker_id,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        unclean=partition.unclean,
    )


def _become_controller(draft: MutableImage, item: change.BecomeController) -> None:
    epoch = draft.version if item.epoch < 0 else item.epoch
    draft.require_broker(item.broker_id, item.broker_epoch)
    draft.controller = ControllerImage(item.broker_id, item.broker_epoch, epoch)


def _create_topic(draft: MutableImage, item: change.CreateTopic) -> None:
    like = draft.normalized_names.get(normalize(item.name))
    if like is not None:
        raise ReplayError(f"topic {like!r} is there already")
    if item.topic_id in draft.topic_names or len(item.topic_id) != len(ZERO_ID) or item.topic_id == ZERO_ID:
        raise ReplayError(f"{item.topic_id.hex()} cannot be the id of a new topic")
    draft.put_topic(TopicImage(item.name, item.topic_id))
    draft.topic_names = draft.topic_names.set(item.topic_id, item.name)
    draft.normalized_names = draft.normalized_names.set(normalize(item.name), item.name)


def _create_partition(draft: MutableImage, item: change.CreatePartition) -> None:
    topic = draft.topic(item.topic_id)
    if item.partition != len(topic.partitions):
        raise ReplayError(f"the next partition of {topic.name!r} is {len(topic.partitions)}, not {item.partition}")
    partition = PartitionImage(
        item.replicas, item.isr, item.leader, item.leader_epoch, item.partition_epoch, item.unclean
    )
    _check_partition(partition)
    draft.put_topic(TopicImage(topic.name, topic.id, (*topic.partitions, partition)))


def _change_partition(draft: MutableImage, item: change.ChangePartition) -> None:
    topic = draft.topic(item.topic_id)
    if not 0 <= item.partition < len(topic.partitions):
        raise ReplayError(f"topic {topic.name!r} has no partition {item.partition}")
    before = topic.partitions[item.partition]
    if item.partition_epoch != before.partition_epoch:
        raise ReplayError(f"partition is at epoch {before.partition_epoch}, not {item.partition_epoch}")
    leader = before.leader if item.leader is None else item.leader
    replicas = before.replicas if item.replicas is None else item.replicas
    after = PartitionImage(
        replicas=replicas,
        isr=before.isr if item.isr is None else item.isr,
        leader=leader,
        leader_epoch=before.leader_epoch + (leader != before.leader or replicas != before.replicas),
        partition_epoch=before.partition_epoch + 1,
        # a second in-sync replica has every committed record
        unclean=before.unclean and (item.isr is None or len(item.isr) < 2),
    )
    _check_partition(after)
    partitions = (*topic.partitions[: item.partition], after, *topic.partitions[item.partition + 1 :])
    draft.put_topic(replace(topic, partitions=partitions))


def _check_partition(partition: PartitionImage) -> None:
    replicas, isr = partition.replicas, partition.isr
    if not replicas or len(set(replicas)) != len(replicas):
        raise ReplayError(f"replicas {list(replicas)}")
    if not isr or len(set(isr)) != len(isr) or not set(isr) <= set(replicas):
        raise ReplayError(f"in-sync replicas {list(isr)} of {list(replicas)}")
    if partition.leader != NO_LEADER and partition.leader not in isr:
        raise ReplayError(f"leader {partition.leader} is not in sync: {list(isr)}")


def _delete_topic(draft: MutableImage, item: change.DeleteTopic) -> None:
    topic = draft.topic(item.topic_id)
    draft.topics_by_name = draft.topics_by_name.delete(topic.name)
    draft.topic_names = draft.topic_names.delete(topic.id)
    draft.normalized_names = draft.normalized_names.delete(normalize(topic.name))
    if (ConfigResource.TOPIC, topic.name) in draft.configs:
        draft.configs = draft.configs.delete((ConfigResource.TOPIC, topic.name))


def _set_config(draft: MutableImage, item: change.SetConfig) -> None:
    where = (item.resource_type, item.resource_name)
    if item.resource_type is ConfigResource.TOPIC and item.resource_name not in draft.topics_by_name:
        raise ReplayError(f"no topic {item.resource_name!r} to configure")
    config: Map[str, str] = draft.configs.get(where, Map())
    if item.value is not None:
        config = config.set(item.key, item.value)
    elif item.key in config:
        config = config.delete(item.key)
    if config:
        draft.configs = draft.configs.set(where, config)
    elif where in draft.configs:
        draft.configs = draft.configs.delete(where)


def _reserve_producer_ids(draft: MutableImage, item: change.ReserveProducerIds) -> None:
    if item.broker_id >= 0:  # a snapshot sums up the blocks of all brokers
        draft.require_broker(item.broker_id, item.broker_epoch)
    if item.first != draft.next_producer_id or item.count < 1:
        raise ReplayError(f"the next producer id is {draft.next_producer_id}, not {item.first}")
    draft.next_producer_id += item.count


def _set_feature(draft: MutableImage, item: change.SetFeature) -> None:
    if item.level:
        draft.features = draft.features.set(item.name, item.level)
    elif item.name in draft.features:
        draft.features = draft.features.delete(item.name)


_RULES: Mapping[type, Callable[[MutableImage, Any], None]] = {
    change.SetClusterId: _set_cluster_id,
    change.RegisterBroker: _register_broker,
    change.FenceBroker: _fence_broker,
    change.UnfenceBroker: _unfence_broker,
    change.UnregisterBroker: _unregister_broker,
    change.BecomeController: _become_controller,
    change.CreateTopic: _create_topic,
    change.CreatePartition: _create_partition,
    change.ChangePartition: _change_partition,
    change.DeleteTopic: _delete_topic,
    change.SetConfig: _set_config,
    change.ReserveProducerIds: _reserve_producer_ids,
    change.SetFeature: _set_feature,
}
