"""Deciders that move partitions to other brokers, with Kafka's checks and error codes (KIP-455).

A reassignment adds the new replicas, waits until all of them are in the ISR, and then drops the old ones. Until then
both are among the replicas of the partition: the target comes first, in its order, then what is to be removed, by id.

    adding      replicas that the partition did not have before
    removing    replicas that it will not have afterwards; one that an earlier request added may be in both
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from ottla.cluster.changes import ChangePartition
from ottla.cluster.cordons import is_cordoned
from ottla.cluster.decision import Decision
from ottla.cluster.encoding import count_fitting
from ottla.cluster.image import Image, PartitionImage
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition

AT_ONCE_MAX = 10_000
"""Partitions of one call, as in Kafka, if their changes fit one entry of the metadata log. The others are answered
OPERATION_NOT_ATTEMPTED."""

REPLICAS_MAX = 1000
"""Replicas of one partition."""


def alter_reassignments(
    image: Image,
    targets: Sequence[tuple[TopicPartition, Sequence[int] | None]],
    *,
    allow_replication_factor_change: bool = True,
) -> Decision[list[KafkaError | None]]:
    """Start, change or (target None) cancel reassignments. The result has the error of each target, or None.

    As in Kafka, each target is judged by what the partition was before all of them. If a partition is there twice, the
    last of its changes counts.
    """
    changes: dict[TopicPartition, ChangePartition] = {}
    errors: list[KafkaError | None] = []
    for where, target in targets:
        try:
            if len(changes) == AT_ONCE_MAX:
                raise _make_limit_error(AT_ONCE_MAX)
            change = _alter(image, where, target, allow_replication_factor_change)
        except KafkaError as error:
            errors.append(error)
            continue
        errors.append(None)
        if change is not None:
            changes[where] = change
    attempted = count_fitting(tuple(changes.values()))
    if attempted < len(changes):
        left = set(islice(changes, attempted, None))
        errors = [
            _make_limit_error(attempted) if error is None and where in left else error
            for (where, _), error in zip(targets, errors, strict=True)
        ]
    return Decision(tuple(islice(changes.values(), attempted)), errors)


def list_reassignments(
    image: Image, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, PartitionImage]:
    """The partitions that are being reassigned: of those given, or of all. Unknown ones are left out."""
    if partitions is not None:
        named = ((where, image.partition(where.topic, where.partition)) for where in partitions)
        return {where: state for where, state in named if state is not None and (state.adding or state.removing)}
    return {
        TopicPartition(topic.name, index): state
        for topic in image.topics()
        for index, state in enumerate(topic.partitions)
        if state.adding or state.removing
    }


def finish_reassignments(image: Image, limit: int = AT_ONCE_MAX) -> Decision[int]:
    """Drop the old replicas of every partition whose new replicas are in sync. Returns how many were finished."""
    finished = (
        change
        for topic in image.topics()
        for index, state in enumerate(topic.partitions)
        if (state.adding or state.removing)
        and (change := complete_reassignment(topic.id, index, state, state.isr)) is not None
    )
    changes = list(islice(finished, limit))
    return Decision(changes, len(changes))


def complete_reassignment(
    topic_id: bytes, index: int, state: PartitionImage, isr: tuple[int, ...]
) -> ChangePartition | None:
    """The change that ends the reassignment of the partition, if it can end with this ISR."""
    if not state.adding and not state.removing:
        return None
    replicas = tuple(member for member in state.replicas if member not in state.removing)
    remaining = tuple(member for member in isr if member not in state.removing)
    if not remaining or not set(replicas) <= set(remaining):
        return None
    return ChangePartition(
        topic_id, index, state.partition_epoch, isr=remaining, replicas=replicas, adding=(), removing=()
    )


def _make_limit_error(limit: int) -> KafkaError:
    return KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, f"{limit} changes at once are the limit")


def _alter(
    image: Image, where: TopicPartition, target: Sequence[int] | None, allow_replication_factor_change: bool
) -> ChangePartition | None:
    topic = image.topic(where.topic)
    if topic is None or not 0 <= where.partition < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}")
    state = topic.partitions[where.partition]
    if target is None:
        return _cancel(image, topic.id, where, state)
    _check_target(image, where, target, state.replicas)
    factor = len(state.replicas) - len(state.removing)
    if not allow_replication_factor_change and len(target) != factor:
        message = f"{where} would have {len(target)} replicas instead of {factor}, which the request forbids"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return _reassign(topic.id, where.partition, state, tuple(target))


def _check_target(image: Image, where: TopicPartition, target: Sequence[int], present: Sequence[int]) -> None:
    if not target:
        problem = "no replica is given"
    elif len(target) > REPLICAS_MAX:
        problem = f"{len(target)} replicas are given, {REPLICAS_MAX} are the limit"
    elif len(set(target)) != len(target):
        problem = f"a broker is named twice: {list(target)}"
    else:
        brokers = {broker_id: image.broker(broker_id) for broker_id in sorted(target)}
        unknown = [broker_id for broker_id, broker in brokers.items() if broker is None]
        new = [broker for broker_id, broker in brokers.items() if broker is not None and broker_id not in present]
        cordoned = [broker.id for broker in new if is_cordoned(image, broker)]
        if unknown:
            problem = f"there is no broker {unknown[0]}"
        elif cordoned:
            problem = f"all directories of broker {cordoned[0]} are cordoned"
        else:
            return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where} cannot be reassigned: {problem}")


def _reassign(topic_id: bytes, index: int, state: PartitionImage, target: tuple[int, ...]) -> ChangePartition | None:
    original = set(state.replicas) - set(state.adding)
    removing = tuple(sorted(set(state.replicas) - set(target)))
    adding = tuple(sorted({*target, *removing} - original))  # also what an earlier request added in vain
    replicas = target + removing
    if (replicas, adding, removing) == (state.replicas, state.adding, state.removing):
        return None
    wanted = ChangePartition(
        topic_id, index, state.partition_epoch, replicas=replicas, adding=adding, removing=removing
    )
    after = PartitionImage(
        replicas, state.isr, state.leader, partition_epoch=state.partition_epoch, adding=adding, removing=removing
    )
    return complete_reassignment(topic_id, index, after, state.isr) or wanted


def _cancel(image: Image, topic_id: bytes, where: TopicPartition, state: PartitionImage) -> ChangePartition:
    if not state.adding and not state.removing:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{where} is not being reassigned")
    replicas = tuple(member for member in state.replicas if member not in state.adding)
    isr = tuple(member for member in state.isr if member in replicas)
    complete = state.isr + state.elr or (state.last_known_leader,)
    if not set(complete) <= set(state.adding):
        return ChangePartition(
            topic_id, where.partition, state.partition_epoch, isr=isr, replicas=replicas, adding=(), removing=()
        )
    if not image.topic_rules(where.topic).unclean_election:
        message = f"only new replicas of {where} are complete: without them records would be lost"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return ChangePartition(
        topic_id,
        where.partition,
        state.partition_epoch,
        isr=(),
        replicas=replicas,
        adding=(),
        removing=(),
        recovering=True,
    )
