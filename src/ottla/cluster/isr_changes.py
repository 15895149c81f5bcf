"""The deciders that change the ISR of partitions.

Leaders do so with the checks of Kafka's AlterPartition. A replica that cannot be written to leaves the ISR by itself.

Leaders propose; each proposal of a call is accepted or refused on its own. One that brings the last new replica of a
reassignment into the ISR also finishes the reassignment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.cluster.changes import Change, ChangePartition
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image, PartitionImage
from ottla.cluster.reassignments import complete_reassignment
from ottla.cluster.registration import require_current
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicIdPartition

AT_ONCE_MAX = 5000
"""Changes of one call: an entry of the metadata log is limited. The others are answered OPERATION_NOT_ATTEMPTED."""

ANY_EPOCH = -1
"""The broker epoch of a member whose epoch need not be checked."""


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A new ISR of a partition, proposed by its leader at these epochs.

    Each member comes with the broker epoch at which it was seen to be in sync (KIP-903): a process that has been
    replaced since may have had records that the new one lacks.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


def change_isr(
    image: Image, broker_id: int, broker_epoch: int, proposals: Sequence[IsrChange]
) -> Decision[list[KafkaError | None]]:
    """Change the ISR of partitions that the broker leads. The result has the error of each proposal, or None.

    NEW_LEADER_ELECTED is an error of a proposal that was accepted: it ended a reassignment which takes the leadership
    from the broker.
    """
    broker = require_current(image, broker_id, broker_epoch)
    if broker.fenced:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is fenced")
    changes: list[Change] = []
    results: list[KafkaError | None] = []
    seen: set[TopicIdPartition] = set()
    for proposal in proposals:
        where = (proposal.topic_id, proposal.partition)
        try:
            if where in seen:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named more than once")
            state = _check(image, broker_id, proposal)
            if len(changes) == AT_ONCE_MAX:
                raise KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"{AT_ONCE_MAX} changes at once are the limit")
        except KafkaError as error:
            results.append(error)
            continue
        seen.add(where)
        isr = tuple(member for member, _ in proposal.isr)
        if set(isr) == set(state.isr):
            results.append(None)
            continue
        change = complete_reassignment(*where, state, isr)
        results.append(None)
        if change is None:
            change = ChangePartition(*where, state.partition_epoch, isr=isr)
        elif change.isr is not None and broker_id not in change.isr:
            results[-1] = KafkaError(ErrorCode.NEW_LEADER_ELECTED, "the reassignment ended; another replica leads")
        changes.append(change)
    return Decision(changes, results)


def leave_isr(image: Image, broker_id: int, broker_epoch: int, partitions: Iterable[TopicIdPartition]) -> Decision[int]:
    """Take a broker out of the ISR of these partitions, because its disk refuses their records.

    Where it leads, replay elects another replica. It stays where no other in-sync replica could lead. Returns how many
    partitions changed.
    """
    require_current(image, broker_id, broker_epoch)
    changes: list[Change] = []
    for topic_id, index in partitions:
        state = image.partition_by_id(topic_id, index)
        if state is None or broker_id not in state.isr:
            continue
        others = tuple(member for member in state.isr if member != broker_id)
        if any(image.serves(member) and member not in state.offline for member in others):
            changes.append(ChangePartition(topic_id, index, state.partition_epoch, isr=others))
    return Decision(changes, len(changes))


def _check(image: Image, broker_id: int, proposal: IsrChange) -> PartitionImage:
    """The partition, if its leader may propose this now. KafkaError with the code of AlterPartition otherwise."""
    topic = image.topic_by_id(proposal.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= proposal.partition < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    state = topic.partitions[proposal.partition]
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker's metadata is older than the proposal")
    if proposal.leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {state.leader_epoch}")
    if state.leader != broker_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {state.leader} leads this partition")
    if proposal.partition_epoch < state.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"the partition epoch is {state.partition_epoch}")
    members = [member for member, _ in proposal.isr]
    if len(set(members)) != len(members) or not set(members) <= set(state.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{members} cannot be in sync: replicas are {list(state.replicas)}")
    if broker_id not in members:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the leader itself is not among {members}")
    for member, epoch in proposal.isr:
        problem = _find_problem(image, state, member, epoch)
        # The leader keeps its place while it is about to stop and nobody can take over.
        if problem is not None and not (member == broker_id and image.brokers[member].shutting_down):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member} {problem}")
    return state


def _find_problem(image: Image, state: PartitionImage, member: int, epoch: int) -> str | None:
    """Why a replica cannot be in an ISR, or None."""
    broker = image.broker(member)
    if broker is None:
        return "is not registered"
    if broker.shutting_down:
        return "is shutting down"
    if broker.fenced:
        return "is fenced"
    if epoch not in (ANY_EPOCH, broker.epoch):
        return f"is at broker epoch {broker.epoch}, not {epoch}"
    if member in state.offline:
        return "has lost the directory of this partition"
    return None
