"""Random histories of a cluster: entries of changes that each fit the image before them."""

import random

from hypothesis import strategies as st

from ottla.cluster import changes as change
from ottla.cluster.changes import Change, ConfigResource, Endpoint, TopicReplicas
from ottla.cluster.image import EMPTY, Image
from ottla.security.acls import Acl
from ottla.security.operations import Operation, PatternType, Permission, ResourceType

History = list[tuple[Change, ...]]


def histories(entries_max: int = 30) -> st.SearchStrategy[History]:
    return st.builds(history, st.integers(0, 2**32), st.integers(1, entries_max))


def history(seed: int, entries: int) -> History:
    """The same seed gives the same history."""
    source = random.Random(seed)
    image = EMPTY
    result: History = []
    while len(result) < entries:
        changes = _entry(source, image)
        if changes:
            image = image.replay(image.version + 1, changes)
            result.append(changes)
    return result


def replayed(entries: History) -> Image:
    image = EMPTY
    for changes in entries:
        image = image.replay(image.version + 1, changes)
    return image


def _entry(source: random.Random, image: Image) -> tuple[Change, ...]:
    if image.cluster_id is None:
        return (change.SetClusterId("c" * 22),)
    return source.choice(_STEPS)(source, image)


def _register(source: random.Random, image: Image) -> tuple[Change, ...]:
    endpoint = Endpoint("PLAINTEXT", source.choice(["localhost", "höst"]), source.randrange(65536), "PLAINTEXT")
    rack = source.choice([None, "", "a", "b"])
    broker_id = source.randrange(4)
    directories = tuple(each * 16 for each in (b"d", b"e") if source.random() < 0.8)
    return (change.RegisterBroker(broker_id, directories, (endpoint,), rack, source.random() < 0.5),)


def _fence(source: random.Random, image: Image) -> tuple[Change, ...]:
    alive = image.alive_brokers()
    return tuple(change.FenceBroker(broker.id, broker.epoch) for broker in source.sample(alive, min(1, len(alive))))


def _unfence(source: random.Random, image: Image) -> tuple[Change, ...]:
    return tuple(change.UnfenceBroker(b.id, b.epoch) for b in image.all_brokers() if b.fenced and source.random() < 0.8)


def _shut_down(source: random.Random, image: Image) -> tuple[Change, ...]:
    alive = image.alive_brokers()
    return tuple(change.BeginShutdown(broker.id, broker.epoch) for broker in source.sample(alive, min(1, len(alive))))


def _take_offline(source: random.Random, image: Image) -> tuple[Change, ...]:
    changes: list[Change] = []
    for broker in image.all_brokers():
        for topic in image.topics():
            kept = tuple(number for number, found in enumerate(topic.partitions) if broker.id in found.replicas)
            if kept and source.random() < 0.3:
                replicas = (TopicReplicas(topic.id, kept),)
                changes.append(change.TakeReplicasOffline(broker.id, broker.epoch, replicas, source.random() < 0.5))
    return tuple(changes)


def _unregister(source: random.Random, image: Image) -> tuple[Change, ...]:
    return tuple(change.UnregisterBroker(each.id) for each in image.all_brokers() if each.fenced)[:1]


def _control(source: random.Random, image: Image) -> tuple[Change, ...]:
    return tuple(change.BecomeController(broker.id, broker.epoch) for broker in image.alive_brokers()[:1])


def _create(source: random.Random, image: Image) -> tuple[Change, ...]:
    alive = [broker.id for broker in image.alive_brokers()]
    name = source.choice(["orders", "a.b", "a_b", "x-1", "__consumer_offsets", "z" * 249])
    if not alive or image.topic_like(name) is not None:
        return ()
    topic_id = source.randbytes(16)
    changes: list[Change] = [change.CreateTopic(topic_id, name)]
    for number in range(source.randrange(4)):
        replicas = tuple(source.sample(alive, source.randint(1, len(alive))))
        changes.append(change.CreatePartition(topic_id, number, replicas, replicas, replicas[0]))
    for key, values in (("min.insync.replicas", "123"), ("unclean.leader.election.enable", ("true", "false"))):
        if source.random() < 0.5:
            changes.append(change.SetConfig(ConfigResource.TOPIC, name, key, source.choice(values)))
    return tuple(changes)


def _shrink(source: random.Random, image: Image) -> tuple[Change, ...]:
    changes: list[Change] = []
    for topic in image.topics():
        for number, partition in enumerate(topic.partitions):
            if partition.leader >= 0 and source.random() < 0.5:
                isr = (partition.leader,)
                changes.append(change.ChangePartition(topic.id, number, partition.partition_epoch, isr=isr))
    return tuple(changes)


def _delete(source: random.Random, image: Image) -> tuple[Change, ...]:
    topics = list(image.topics())
    return (change.DeleteTopic(source.choice(topics).id),) if topics else ()


def _configure(source: random.Random, image: Image) -> tuple[Change, ...]:
    value = source.choice([None, "", "1", "ü"])
    if source.random() < 0.5:
        return (change.SetConfig(ConfigResource.BROKER, "", "min.insync.replicas", source.choice([None, "1", "2"])),)
    return (change.SetConfig(ConfigResource.BROKER, source.choice(["", "1"]), source.choice("ab"), value),)


def _reserve(source: random.Random, image: Image) -> tuple[Change, ...]:
    brokers = image.all_brokers()[:1]
    return tuple(change.ReserveProducerIds(b.id, b.epoch, image.next_producer_id, 1000) for b in brokers)


def _feature(source: random.Random, image: Image) -> tuple[Change, ...]:
    return (change.SetFeature(source.choice(["group.version", "share.version"]), source.randrange(3)),)


def _acls(source: random.Random, image: Image) -> tuple[Change, ...]:
    known = list(image.acls)
    if known and source.random() < 0.4:
        return tuple(map(change.RemoveAcl, source.sample(known, source.randint(1, min(3, len(known))))))
    new = {random_acl(source) for _ in range(source.randint(1, 4))}
    return tuple(change.AddAcl(acl) for acl in sorted(new) if acl not in image.acls)


def random_acl(source: random.Random) -> Acl:
    """Few values for each field, so that ACLs meet and differ in one field."""
    return Acl(
        source.choice((ResourceType.TOPIC, ResourceType.GROUP)),
        source.choice(("*", "a", "ab", "abc", "b", "hardcode")),
        source.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        source.choice(("User:alice", "User:bob", "User:*", "Group:alice")),
        source.choice(("*", "10.0.0.1")),
        source.choice((Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL, Operation.ALTER_CONFIGS)),
        source.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


_STEPS = (
    _register,
    _unfence,
    _unfence,
    _create,
    _create,
    _fence,
    _shut_down,
    _take_offline,
    _unregister,
    _control,
    _shrink,
    _delete,
    _configure,
    _reserve,
    _feature,
    _acls,
    _acls,
)
