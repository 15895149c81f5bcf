"""The election rules of the versions of Ottla that ran as one broker only, for the metadata logs that they wrote.

Replaying such a log must give the epochs that were in force when it was written: they are in the partitions' logs, and
later changes name them. Brokers of this version register in a way that ends these rules, so nothing new is decided by
them.

The last in-sync replica stays in the ISR, also while its broker is away, and is marked if it came back from a crash.
"""

from collections.abc import Set
from dataclasses import replace

from ottla.cluster.changes import NO_LEADER, ChangePartition
from ottla.cluster.entities import PartitionImage
from ottla.cluster.leadership import raise_epochs


def remove_broker(
    partition: PartitionImage, broker_id: int, serving: Set[int], *, unclean: bool = False
) -> PartitionImage:
    """The partition without a broker in its ISR. The last in-sync replica stays, because no other may lead."""
    if broker_id not in partition.isr:
        return partition
    isr = tuple(member for member in partition.isr if member != broker_id)
    leader = partition.leader
    if leader == broker_id:
        leader = next((member for member in partition.replicas if member in isr and member in serving), NO_LEADER)
    marked = partition.recovering or (not isr and unclean)
    return raise_epochs(partition, replace(partition, isr=isr or partition.isr, leader=leader, recovering=marked))


def restore_leader(partition: PartitionImage, broker_id: int) -> PartitionImage:
    """An in-sync replica that is back leads a partition that nobody leads."""
    if partition.leader != NO_LEADER or broker_id not in partition.isr:
        return partition
    return raise_epochs(partition, replace(partition, leader=broker_id))


def change_partition(before: PartitionImage, item: ChangePartition) -> PartitionImage:
    """Every change raised the partition epoch, also one that changed nothing; any change of replicas the leader's."""
    leader = before.leader if item.leader is None else item.leader
    replicas = before.replicas if item.replicas is None else item.replicas
    return replace(
        before,
        replicas=replicas,
        isr=before.isr if item.isr is None else item.isr,
        leader=leader,
        leader_epoch=before.leader_epoch + (leader != before.leader or replicas != before.replicas),
        partition_epoch=before.partition_epoch + 1,
        recovering=before.recovering and (item.isr is None or len(item.isr) < 2),
    )
