"""Who may lead a partition: the rules by which replay elects leaders and keeps the ISR and the ELR (KIP-966).

Only replicas in the ISR or the ELR are candidates: they have every committed record. A replica that may have lost
records is in neither. If nobody is left in either, the last known leader may lead again, since no other replica has
more. Otherwise the partition stays without a leader, unless the topic allows an unclean election.

These rules are part of the format of the metadata log: every broker replays an entry into the same image. A change of
the rules needs a new level of `Image.election_rules`, and entries before it are replayed by the rules of their time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ottla.cluster.changes import NO_LEADER, ConfigResource
from ottla.cluster.entities import BrokerImage, PartitionImage

FIRST_RULES = 0
"""Level of `Image.election_rules` before there were clusters: see first_rules.py."""

ELIGIBLE_LEADER_REPLICAS = 1
"""Level of `Image.election_rules` that this module implements."""


class Electorate(NamedTuple):
    """The brokers at the moment of an election: who can be elected, and who is running at all."""

    serving: frozenset[int]
    running: frozenset[int]

    @classmethod
    def of(cls, brokers: Mapping[int, BrokerImage]) -> "Electorate":
        return cls(
            frozenset(broker_id for broker_id, broker in brokers.items() if broker.serves),
            frozenset(broker_id for broker_id, broker in brokers.items() if not broker.fenced),
        )


MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
SETTINGS = (MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION)
"""The settings that elections depend on."""

Configs = Mapping[tuple[ConfigResource, str], Mapping[str, str]]


class TopicRules(NamedTuple):
    """The settings of a topic that elections depend on, from the metadata only.

    Without enough replicas in sync a leader commits nothing, so those that left the ISR still have everything. This
    holds if `min_insync_replicas` is no larger than what the leader goes by.
    """

    min_insync_replicas: int = 1
    unclean_election: bool = False


def read_common_rules(configs: Configs, broker_ids: Iterable[int]) -> TopicRules:
    """The rules of topics without settings of their own.

    A broker may have a min.insync.replicas of its own: the smallest counts, since any of them may lead.
    """
    everywhere = configs.get((ConfigResource.BROKER, ""), {})
    needed = _read_number(everywhere.get(MIN_INSYNC_REPLICAS))
    for broker_id in broker_ids:
        own = configs.get((ConfigResource.BROKER, str(broker_id)))
        if own is not None and MIN_INSYNC_REPLICAS in own:
            needed = min(needed, _read_number(own[MIN_INSYNC_REPLICAS]))
    return TopicRules(needed, everywhere.get(UNCLEAN_ELECTION) == "true")


def read_topic_rules(configs: Configs, topic: str, common: TopicRules) -> TopicRules:
    """The rules of a topic: its own settings, else the common ones."""
    own = configs.get((ConfigResource.TOPIC, topic))
    if own is None or not (MIN_INSYNC_REPLICAS in own or UNCLEAN_ELECTION in own):
        return common
    return TopicRules(
        _read_number(own[MIN_INSYNC_REPLICAS]) if MIN_INSYNC_REPLICAS in own else common.min_insync_replicas,
        own[UNCLEAN_ELECTION] == "true" if UNCLEAN_ELECTION in own else common.unclean_election,
    )


def _read_number(value: str | None) -> int:
    """The number, or the default 1. Replay never fails because of a setting."""
    return max(1, int(value)) if value is not None and value.isascii() and value.isdigit() else 1


def settle(before: PartitionImage, wanted: PartitionImage, electorate: Electorate, rules: TopicRules) -> PartitionImage:
    """The partition after a change to `wanted`, with a leader if one can be elected, and with its epochs raised.

    `wanted.elr` names everyone who has all committed records; the members of the ISR may be among them. Returns
    `before` itself if nothing changes.
    """
    replicas, complete = wanted.replicas, wanted.elr
    usable = [member for member in replicas if member in electorate.serving and member not in wanted.offline]
    needed = min(rules.min_insync_replicas, len(replicas))
    isr = wanted.isr
    elr = _find_eligible(replicas, isr, complete, needed)
    leader, recovering = _elect(wanted, isr, elr, usable, electorate, rules)
    if leader != NO_LEADER and leader not in isr:
        isr = (leader,)
        if recovering and leader not in elr:
            complete = ()  # from here on, what counts as committed is what this leader has
    elif leader in usable:
        isr = tuple(member for member in isr if member in usable)
    if leader == NO_LEADER:
        last_known_leader = before.leader if before.leader != NO_LEADER else wanted.last_known_leader
        if last_known_leader not in replicas:
            last_known_leader = NO_LEADER
    else:
        last_known_leader = NO_LEADER
    after = PartitionImage(
        replicas,
        isr,
        leader,
        before.leader_epoch,
        before.partition_epoch,
        _find_eligible(replicas, isr, complete, needed),
        last_known_leader,
        recovering and len(isr) < 2,
        wanted.adding,
        wanted.removing,
        wanted.offline,
    )
    return raise_epochs(before, after)


def raise_epochs(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """`after` with the epochs that come after those of `before`, or `before` itself if both are equal."""
    if after == before:
        return before
    removed = after.replicas != before.replicas and not set(before.replicas) <= set(after.replicas)
    return PartitionImage(
        after.replicas,
        after.isr,
        after.leader,
        before.leader_epoch + (after.leader != before.leader or removed),
        before.partition_epoch + 1,
        after.elr,
        after.last_known_leader,
        after.recovering,
        after.adding,
        after.removing,
        after.offline,
    )


def _find_eligible(
    replicas: tuple[int, ...], isr: tuple[int, ...], complete: tuple[int, ...], needed: int
) -> tuple[int, ...]:
    """The ELR. With enough replicas in sync it is empty: they commit records that nobody else has."""
    if len(isr) >= needed:
        return ()
    return tuple(member for member in replicas if member in complete and member not in isr)


def _elect(
    wanted: PartitionImage,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    usable: list[int],
    electorate: Electorate,
    rules: TopicRules,
) -> tuple[int, bool]:
    """The leader, and whether it may lack acknowledged records."""
    leader = wanted.leader
    if leader in isr and leader in usable:
        return leader, wanted.recovering
    for candidates in (isr, elr):
        for member in usable:
            if member in candidates:
                return member, False
    if leader in isr and leader in electorate.running and leader not in wanted.offline:
        return leader, wanted.recovering  # it is about to stop, and nobody can take over
    last = wanted.last_known_leader if leader == NO_LEADER else leader
    if last in usable and ((not isr and not elr) or rules.unclean_election):
        return last, True
    if usable and rules.unclean_election:
        return usable[0], True
    return NO_LEADER, False


# What happens to a partition when something happens to a broker that keeps a replica of it


def fence(partition: PartitionImage, broker_id: int, electorate: Electorate, rules: TopicRules) -> PartitionImage:
    """The broker is gone. Its replica still has every committed record, so it may be in the ELR."""
    if broker_id not in partition.isr:
        return partition
    wanted = _with_members(partition, _without(partition.isr, broker_id), partition.isr + partition.elr)
    return settle(partition, wanted, electorate, rules)


def register(
    partition: PartitionImage,
    broker_id: int,
    electorate: Electorate,
    rules: TopicRules,
    *,
    intact: bool,
    emptied: bool,
) -> PartitionImage:
    """The broker registers again. `intact`: it has all that it had. `emptied`: it has no directory that it had."""
    complete = partition.isr + partition.elr
    if broker_id not in complete and broker_id not in partition.offline and broker_id != partition.last_known_leader:
        return partition
    wanted = _with_members(
        partition,
        _without(partition.isr, broker_id),
        complete if intact else _without(complete, broker_id),
    )
    if broker_id in partition.offline:
        wanted = replace(wanted, offline=_without(partition.offline, broker_id))
    if not emptied:
        return settle(partition, wanted, electorate, rules)
    wanted = replace(wanted, last_known_leader=_forget(partition, broker_id))
    if partition.leader == broker_id:
        return _settle_without_leader(partition, wanted, electorate, rules)
    return settle(partition, wanted, electorate, rules)


def unfence(partition: PartitionImage, electorate: Electorate, rules: TopicRules) -> PartitionImage:
    """A broker serves: it may lead what nobody leads, or what is led by a broker that is about to stop."""
    if partition.leader in electorate.serving:
        return partition
    return settle(partition, reconsider(partition), electorate, rules)


def begin_shutdown(
    partition: PartitionImage, broker_id: int, electorate: Electorate, rules: TopicRules
) -> PartitionImage:
    """The broker is about to stop. Where nobody else can lead, it does so until it is gone."""
    if broker_id not in partition.isr:
        return partition
    wanted = _with_members(partition, _without(partition.isr, broker_id), partition.isr + partition.elr)
    after = settle(partition, wanted, electorate, rules._replace(unclean_election=False))
    return partition if after.leader == NO_LEADER else after


def take_offline(
    partition: PartitionImage,
    broker_id: int,
    electorate: Electorate,
    rules: TopicRules,
    *,
    lost: bool,
    has_all_directories: bool = False,
) -> PartitionImage:
    """The directory of the replica failed, or (`lost`) the broker runs without the log.

    `has_all_directories`: the broker has every directory that it ever had. Then the log was never on its disk: the
    broker ended before it had created the log, or lost power before the first flush. The only replica of a partition
    may lead again in this case, as one may that has lost its unflushed records.
    """
    complete = partition.isr + partition.elr
    isr = _without(partition.isr, broker_id)
    if not lost:
        offline = partition.offline
        if broker_id not in offline:
            offline = tuple(member for member in partition.replicas if member == broker_id or member in offline)
        return settle(partition, replace(partition, isr=isr, elr=complete, offline=offline), electorate, rules)
    if has_all_directories and partition.replicas == (broker_id,):
        return settle(partition, replace(partition, isr=(), elr=()), electorate, rules)
    wanted = replace(
        partition, isr=isr, elr=_without(complete, broker_id), last_known_leader=_forget(partition, broker_id)
    )
    if partition.leader == broker_id:
        return _settle_without_leader(partition, wanted, electorate, rules)
    return settle(partition, wanted, electorate, rules)


def unregister(partition: PartitionImage, broker_id: int, electorate: Electorate, rules: TopicRules) -> PartitionImage:
    """The broker is no member of the cluster any more. If it returns, it returns as a new broker."""
    wanted = replace(
        partition,
        isr=_without(partition.isr, broker_id),
        elr=_without(partition.isr + partition.elr, broker_id),
        last_known_leader=_forget(partition, broker_id),
        offline=_without(partition.offline, broker_id),
    )
    return settle(partition, wanted, electorate, rules)


def reconsider(partition: PartitionImage) -> PartitionImage:
    """What `settle` is asked for when the partition stays as it is, but brokers or settings changed."""
    return _with_members(partition, partition.isr, partition.isr + partition.elr)


def _with_members(partition: PartitionImage, isr: tuple[int, ...], complete: tuple[int, ...]) -> PartitionImage:
    """What `settle` is asked for. Several times as fast as `replace`, for thousands of partitions at once."""
    return PartitionImage(
        partition.replicas,
        isr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        complete,
        partition.last_known_leader,
        partition.recovering,
        partition.adding,
        partition.removing,
        partition.offline,
    )


def _settle_without_leader(
    before: PartitionImage, wanted: PartitionImage, electorate: Electorate, rules: TopicRules
) -> PartitionImage:
    """Like `settle`, for a leader that lost its log: it must not be remembered as the last known leader either."""
    after = settle(before, replace(wanted, leader=NO_LEADER), electorate, rules)
    return replace(after, last_known_leader=NO_LEADER)


def _forget(partition: PartitionImage, broker_id: int) -> int:
    return NO_LEADER if partition.last_known_leader == broker_id else partition.last_known_leader


def _without(members: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(member for member in members if member != broker_id) if broker_id in members else members
