"""The effect of each change on the metadata: one function per kind, which checks the change before it applies it.

The functions work on a `MutableImage`: the maps of the old image, which are replaced one by one. Nobody else sees it
before all changes of an entry are applied.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_args

from immutables import Map

from ottla.cluster import changes as change
from ottla.cluster import first_rules, leadership
from ottla.cluster.changes import NO_LEADER, ZERO_ID, Change, ConfigResource, QuotaName
from ottla.cluster.entities import BrokerImage, ControllerImage, PartitionImage, TopicImage
from ottla.cluster.identities import Identities, replay_identity
from ottla.cluster.identity_changes import IdentityChange
from ottla.cluster.leadership import ELIGIBLE_LEADER_REPLICAS, FIRST_RULES, Electorate, TopicRules
from ottla.cluster.snapshots import compute_digest
from ottla.security.acls import AclSet

LOST_DIRECTORIES_MAX = 100
"""Directory ids that are remembered after a broker came back without them."""


Rule = Callable[[PartitionImage, TopicRules], PartitionImage]
"""What happens to each partition. Returns the same object for a partition that does not change."""


class ReplayError(ValueError):
    """A change does not fit the image: the log is corrupt, or the code that wrote it is wrong."""


@dataclass(slots=True)
class MutableImage:
    """An image under construction. Its fields are those of `Image`, in the same order; those at the end are its own."""

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
    election_rules: int
    largest_unregistered: int
    acls: AclSet
    quotas: Map[tuple[QuotaName, ...], Map[str, float]]
    identities: Identities
    topic_drafts: dict[bytes, tuple[TopicImage, list[PartitionImage]]] = field(default_factory=dict)
    """Topics whose partitions are being changed. `finish_topics` puts them into `topics_by_name`."""
    electorate_of_brokers: tuple[object, Electorate | None] = (None, None)
    common_rules: tuple[object, object, TopicRules | None] = (None, None, None)

    def topic(self, topic_id: bytes) -> TopicImage:
        name = self.topic_names.get(topic_id)
        if name is None:
            raise ReplayError(f"no topic has id {topic_id.hex()}")
        return self.topics_by_name[name]

    def put_topic(self, topic: TopicImage) -> None:
        self.topics_by_name = self.topics_by_name.set(topic.name, topic)

    def partitions(self, topic_id: bytes) -> tuple[TopicImage, list[PartitionImage]]:
        """The topic, and its partitions to be changed in place: an entry may change thousands of them."""
        draft = self.topic_drafts.get(topic_id)
        if draft is None:
            topic = self.topic(topic_id)
            draft = self.topic_drafts[topic_id] = (topic, list(topic.partitions))
        return draft

    def finish_topics(self) -> None:
        if self.topic_drafts:
            with self.topics_by_name.mutate() as topics:
                for topic, partitions in self.topic_drafts.values():
                    topics[topic.name] = replace(topic, partitions=tuple(partitions))
                self.topics_by_name = topics.finish()
            self.topic_drafts.clear()

    def electorate(self) -> Electorate:
        brokers, known = self.electorate_of_brokers
        if known is None or brokers is not self.brokers:
            known = Electorate.of(self.brokers)
            self.electorate_of_brokers = (self.brokers, known)
        return known

    def topic_rules(self, name: str) -> TopicRules:
        """The settings of a topic that elections depend on."""
        configs, brokers, common = self.common_rules
        if common is None or configs is not self.configs or brokers is not self.brokers:
            common = leadership.read_common_rules(self.configs, self.brokers)
            self.common_rules = (self.configs, self.brokers, common)
        return leadership.read_topic_rules(self.configs, name, common)

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


IMAGE_FIELDS = tuple(MutableImage.__slots__[:-3])


def normalize(name: str) -> str:
    """A topic name as in Kafka's metrics, which cannot distinguish '.' from '_'."""
    return name.replace(".", "_")


def replay(draft: MutableImage, changes: Iterable[Change]) -> None:
    """Apply the changes of entry `draft.version`, in order."""
    for item in changes:
        kind = type(item)
        try:
            if kind not in _OF_PARTITIONS:
                draft.finish_topics()
            _RULES[kind](draft, item)
        except ReplayError as error:
            raise ReplayError(f"metadata entry {draft.version}, {kind.__name__}: {error}") from None
    draft.finish_topics()


def _set_cluster_id(draft: MutableImage, item: change.SetClusterId) -> None:
    if draft.cluster_id is not None:
        raise ReplayError(f"this is already cluster {draft.cluster_id}")
    draft.cluster_id = item.cluster_id


def _register_broker(draft: MutableImage, item: change.RegisterBroker) -> None:
    epoch = draft.version if item.epoch < 0 else item.epoch
    before = draft.brokers.get(item.broker_id)
    if item.broker_id < 0 or (before is not None and before.epoch >= epoch):
        raise ReplayError(f"broker {item.broker_id} cannot register at epoch {epoch}")
    had = before.directories if before is not None else ()
    lost = tuple(each for each in had if each not in item.directories)
    known_lost = before.lost_directories if before is not None else item.lost_directories
    all_lost = tuple(each for each in (*known_lost, *lost) if each not in item.directories)
    broker = BrokerImage(
        id=item.broker_id,
        epoch=epoch,
        endpoints=item.endpoints,
        rack=item.rack,
        clean=item.clean,
        directories=item.directories,
        features=item.features,
        incarnation=item.incarnation,
        lost_directories=all_lost[-LOST_DIRECTORIES_MAX:],
        cordoned=item.cordoned,
    )
    draft.brokers = draft.brokers.set(item.broker_id, broker)
    draft.step_down(item.broker_id)
    if item.first_rules:
        draft.election_rules = FIRST_RULES
        serving = draft.electorate().serving
        _change_partitions(
            draft, lambda found, _: first_rules.remove_broker(found, broker.id, serving, unclean=not item.clean)
        )
        return
    draft.election_rules = max(draft.election_rules, ELIGIBLE_LEADER_REPLICAS)
    intact, emptied = item.clean and not lost, bool(lost) and len(lost) == len(had)
    rule = partial(leadership.register, intact=intact, emptied=emptied)
    electorate = draft.electorate()
    _change_partitions(draft, lambda found, rules: rule(found, broker.id, electorate, rules))


def _fence_broker(draft: MutableImage, item: change.FenceBroker) -> None:
    broker = draft.require_broker(item.broker_id, item.broker_epoch)
    draft.brokers = draft.brokers.set(broker.id, replace(broker, fenced=True, shutting_down=False))
    draft.step_down(broker.id)
    electorate = draft.electorate()
    if draft.election_rules == FIRST_RULES:
        serving = electorate.serving
        _change_partitions(draft, lambda found, _: first_rules.remove_broker(found, broker.id, serving))
    else:
        _change_partitions(draft, lambda found, rules: leadership.fence(found, broker.id, electorate, rules))


def _unfence_broker(draft: MutableImage, item: change.UnfenceBroker) -> None:
    broker = draft.require_broker(item.broker_id, item.broker_epoch)
    draft.brokers = draft.brokers.set(broker.id, replace(broker, fenced=False))
    if draft.election_rules == FIRST_RULES:
        _change_partitions(draft, lambda found, _: first_rules.restore_leader(found, broker.id))
    else:
        electorate = draft.electorate()
        _change_partitions(draft, lambda found, rules: leadership.unfence(found, electorate, rules))


def _begin_shutdown(draft: MutableImage, item: change.BeginShutdown) -> None:
    broker = draft.require_broker(item.broker_id, item.broker_epoch)
    draft.brokers = draft.brokers.set(broker.id, replace(broker, shutting_down=True))
    electorate = draft.electorate()
    _change_partitions(draft, lambda found, rules: leadership.begin_shutdown(found, broker.id, electorate, rules))


def _take_replicas_offline(draft: MutableImage, item: change.TakeReplicasOffline) -> None:
    broker = draft.require_broker(item.broker_id, item.broker_epoch)
    take_offline = partial(
        leadership.take_offline,
        broker_id=broker.id,
        electorate=draft.electorate(),
        lost=item.lost,
        has_all_directories=not broker.lost_directories,
    )
    for topic_id, indexes in item.replicas:
        topic, partitions = draft.partitions(topic_id)
        rules = draft.topic_rules(topic.name)
        for index in indexes:
            if not 0 <= index < len(partitions) or broker.id not in partitions[index].replicas:
                raise ReplayError(f"broker {broker.id} keeps no partition {index} of topic {topic.name!r}")
            partitions[index] = take_offline(partitions[index], rules=rules)


def _unregister_broker(draft: MutableImage, item: change.UnregisterBroker) -> None:
    broker = draft.brokers.get(item.broker_id)
    if broker is None or not broker.fenced:
        raise ReplayError(f"broker {item.broker_id} is not a fenced broker")
    draft.brokers = draft.brokers.delete(item.broker_id)
    draft.largest_unregistered = max(draft.largest_unregistered, item.broker_id)
    if draft.election_rules != FIRST_RULES:
        electorate = draft.electorate()
        _change_partitions(draft, lambda found, rules: leadership.unregister(found, broker.id, electorate, rules))


def _change_partitions(draft: MutableImage, rule: Rule, topics: Iterable[str] | None = None) -> None:
    """Apply a rule to every partition, or to those of some topics. Topics that do not change stay the same object."""
    changed: list[TopicImage] = []
    found = draft.topics_by_name.values() if topics is None else map(draft.topics_by_name.__getitem__, topics)
    for topic in found:
        rules = draft.topic_rules(topic.name)
        partitions = tuple([rule(partition, rules) for partition in topic.partitions])
        if any(new is not old for new, old in zip(partitions, topic.partitions, strict=True)):
            changed.append(replace(topic, partitions=partitions))
    if changed:
        with draft.topics_by_name.mutate() as mutable:
            for topic in changed:
                mutable[topic.name] = topic
            draft.topics_by_name = mutable.finish()


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
    topic, partitions = draft.partitions(item.topic_id)
    if item.partition != len(partitions):
        raise ReplayError(f"the next partition of {topic.name!r} is {len(partitions)}, not {item.partition}")
    isr = item.replicas if item.isr == item.replicas else item.isr  # most of 100,000 partitions need only one tuple
    partition = PartitionImage(
        replicas=item.replicas,
        isr=isr,
        leader=item.leader,
        leader_epoch=item.leader_epoch,
        partition_epoch=item.partition_epoch,
        elr=item.elr,
        last_known_leader=item.last_known_leader,
        recovering=item.recovering,
        adding=item.adding,
        removing=item.removing,
        offline=item.offline,
    )
    _check_partition(partition)
    partitions.append(partition)


def _change_partition(draft: MutableImage, item: change.ChangePartition) -> None:
    topic, partitions = draft.partitions(item.topic_id)
    if not 0 <= item.partition < len(partitions):
        raise ReplayError(f"topic {topic.name!r} has no partition {item.partition}")
    before = partitions[item.partition]
    if item.partition_epoch != before.partition_epoch:
        raise ReplayError(f"partition is at epoch {before.partition_epoch}, not {item.partition_epoch}")
    if draft.election_rules == FIRST_RULES:
        after = first_rules.change_partition(before, item)
    else:
        wanted = PartitionImage(
            replicas=before.replicas if item.replicas is None else item.replicas,
            isr=before.isr if item.isr is None else item.isr,
            leader=before.leader if item.leader is None else item.leader,
            elr=() if item.recovering else before.isr + before.elr,
            last_known_leader=before.last_known_leader,
            recovering=before.recovering if item.recovering is None else item.recovering,
            adding=before.adding if item.adding is None else item.adding,
            removing=before.removing if item.removing is None else item.removing,
            offline=tuple(each for each in before.offline if item.replicas is None or each in item.replicas),
        )
        _check_partition(wanted, may_lead=before.leader)
        after = leadership.settle(before, wanted, draft.electorate(), draft.topic_rules(topic.name))
    _check_partition(after)
    partitions[item.partition] = after


def _check_partition(partition: PartitionImage, may_lead: int = NO_LEADER) -> None:
    """ReplayError if the parts contradict each other. `may_lead`: a leader that is about to be replaced."""
    replicas, isr = partition.replicas, partition.isr
    if not replicas or len(set(replicas)) != len(replicas):
        raise ReplayError(f"replicas {list(replicas)}")
    if len(set(isr)) != len(isr) or not set(isr) <= set(replicas):
        raise ReplayError(f"in-sync replicas {list(isr)} of {list(replicas)}")
    if partition.leader not in (NO_LEADER, may_lead) and partition.leader not in isr:
        raise ReplayError(f"leader {partition.leader} is not in sync: {list(isr)}")
    for name in ("adding", "removing"):
        members = getattr(partition, name)
        if members and not set(members) <= set(replicas):
            raise ReplayError(f"{name} {list(members)} of {list(replicas)}")


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
    before = config = draft.configs.get(where, Map())
    if item.value is not None:
        config = config.set(item.key, item.value)
    elif item.key in config:
        config = config.delete(item.key)
    if config:
        draft.configs = draft.configs.set(where, config)
    elif where in draft.configs:
        draft.configs = draft.configs.delete(where)
    if item.key in leadership.SETTINGS and before.get(item.key) != item.value:
        _apply_election_settings(draft, item)


def _set_quota(draft: MutableImage, item: change.SetQuota) -> None:
    values = draft.quotas.get(item.entity, Map())
    if item.value is not None:
        values = values.set(item.key, item.value)
    elif item.key in values:
        values = values.delete(item.key)
    if values:
        draft.quotas = draft.quotas.set(item.entity, values)
    elif item.entity in draft.quotas:
        draft.quotas = draft.quotas.delete(item.entity)


def _apply_election_settings(draft: MutableImage, item: change.SetConfig) -> None:
    """With a smaller min.insync.replicas, those in sync commit alone. An unclean election may be allowed now."""
    if draft.election_rules == FIRST_RULES:
        return
    if item.resource_type is ConfigResource.TOPIC:
        topics: tuple[str, ...] | None = (item.resource_name,)
    elif item.resource_type is ConfigResource.BROKER:
        topics = None
    else:
        return
    electorate = draft.electorate()
    _change_partitions(
        draft, lambda found, rules: leadership.settle(found, leadership.reconsider(found), electorate, rules), topics
    )


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


def _add_acl(draft: MutableImage, item: change.AddAcl) -> None:
    if item.acl in draft.acls:
        raise ReplayError(f"{item.acl} is there already")
    draft.acls = draft.acls.add(item.acl)


def _remove_acl(draft: MutableImage, item: change.RemoveAcl) -> None:
    if item.acl not in draft.acls:
        raise ReplayError(f"{item.acl} is not there")
    draft.acls = draft.acls.remove(item.acl)


def _verify_digest(draft: MutableImage, item: change.VerifyDigest) -> None:
    digest = compute_digest(draft)
    if digest != item.digest:
        message = f"the digest of the metadata is {digest.hex()}, not {item.digest.hex()}"
        raise ReplayError(f"{message}: two versions of Ottla replay it differently")


def _set_election_rules(draft: MutableImage, item: change.SetElectionRules) -> None:
    if item.level not in (FIRST_RULES, ELIGIBLE_LEADER_REPLICAS):
        raise ReplayError(f"this version has no election rules of level {item.level}")
    draft.election_rules = item.level


def _remember_unregistered(draft: MutableImage, item: change.RememberUnregistered) -> None:
    draft.largest_unregistered = item.broker_id


def _change_identity(draft: MutableImage, item: IdentityChange) -> None:
    try:
        draft.identities = replay_identity(draft.identities, item)
    except ValueError as error:
        raise ReplayError(str(error)) from None


_OF_PARTITIONS = (change.CreatePartition, change.ChangePartition, change.TakeReplicasOffline)
"""Changes of single partitions. All others see the topics with these changes applied."""

_RULES: Mapping[type, Callable[[MutableImage, Any], None]] = {
    change.SetClusterId: _set_cluster_id,
    change.RegisterBroker: _register_broker,
    change.FenceBroker: _fence_broker,
    change.UnfenceBroker: _unfence_broker,
    change.BeginShutdown: _begin_shutdown,
    change.TakeReplicasOffline: _take_replicas_offline,
    change.UnregisterBroker: _unregister_broker,
    change.BecomeController: _become_controller,
    change.CreateTopic: _create_topic,
    change.CreatePartition: _create_partition,
    change.ChangePartition: _change_partition,
    change.DeleteTopic: _delete_topic,
    change.SetConfig: _set_config,
    change.SetQuota: _set_quota,
    change.ReserveProducerIds: _reserve_producer_ids,
    change.SetFeature: _set_feature,
    change.AddAcl: _add_acl,
    change.RemoveAcl: _remove_acl,
    change.SetElectionRules: _set_election_rules,
    change.RememberUnregistered: _remember_unregistered,
    change.VerifyDigest: _verify_digest,
    **dict.fromkeys(get_args(IdentityChange), _change_identity),
}
