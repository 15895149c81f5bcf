"""Rules that every image keeps, whatever happened before."""

from collections.abc import Iterator

from ottla.cluster.changes import NO_LEADER
from ottla.cluster.entities import PartitionImage
from ottla.cluster.image import EMPTY, Image


def check_entry(before: Image, after: Image) -> list[str]:
    """What is wrong with the image after an entry."""
    problems = []
    for topic in after.topics():
        old = before.topic_by_id(topic.id)
        for index, state in enumerate(topic.partitions):
            was = old.partitions[index] if old is not None and index < len(old.partitions) else None
            if state is was:
                continue
            problems += [f"{problem}: {was} became {state}" for problem in _check_state(after, state)]
            if was is not None:
                problems += [f"{problem}: {was} became {state}" for problem in _check_epochs(was, state)]
                problems += [f"{problem}: {was} became {state}" for problem in _check_election(after, was, state)]
    return problems


def _check_state(image: Image, state: PartitionImage) -> Iterator[str]:
    members, isr, elr = set(state.replicas), set(state.isr), set(state.elr)
    if not isr | elr | set(state.adding) | set(state.removing) | set(state.offline) <= members:
        yield "STRANGER: one who keeps no replica"
    if isr & elr:
        yield "TWICE: in sync and eligible"
    if state.leader != NO_LEADER:
        broker = image.broker(state.leader)
        if state.leader not in isr:
            yield "LEADER: not in sync"
        if broker is None or broker.fenced or state.leader in state.offline:
            yield "LEADER: cannot serve"
    elif any(image.serves(member) and member not in state.offline for member in isr | elr):
        yield "LEADERLESS: although one can lead"
    if any((broker := image.broker(member)) is None or broker.fenced for member in isr):
        yield "ISR: one who is fenced"


def _check_epochs(was: PartitionImage, state: PartitionImage) -> Iterator[str]:
    if state.partition_epoch != was.partition_epoch + (state != was):
        yield "EPOCH: of the partition"
    if state.leader_epoch < was.leader_epoch or (state.leader != was.leader and state.leader_epoch == was.leader_epoch):
        yield "EPOCH: of the leader"


def _check_election(image: Image, was: PartitionImage, state: PartitionImage) -> Iterator[str]:
    """Whoever asks for an unclean election, or allows it, gets one only where no complete replica can lead."""
    if state.recovering and state.leader != was.leader:
        for member in was.isr + was.elr:
            if member in state.replicas and member not in state.offline and image.serves(member):
                yield f"UNCLEAN: although broker {member} is complete"


def check_snapshot(image: Image) -> list[str]:
    """A snapshot replays into an equal image with the same digest."""
    again = EMPTY.replay(image.version, image.snapshot())
    if again != image:
        return [f"SNAPSHOT: version {image.version} differs after replay"]
    return [] if again.digest() == image.digest() else [f"DIGEST: of version {image.version}"]
