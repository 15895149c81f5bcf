"""Server-side assignors: they decide which member of a consumer group is to read which partition.

An assignor is a pure function of the members' subscriptions, their last target assignments, and the number of
partitions of each topic. `uniform` gives all members the same number of partitions, give or take one, and moves as few
partitions as possible; `range` gives each member neighbouring partitions of each topic. Like those of Kafka 4.3, they
do not use racks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final, NamedTuple

from ottla.topic_partition import TopicIdPartition

Partitions = Mapping[bytes, frozenset[int]]
"""Partitions by topic id. A topic without partitions is left out, so equal sets are equal mappings."""

NO_PARTITIONS: Final[Partitions] = {}


class Subscriber(NamedTuple):
    """What an assignor knows of a member."""

    topics: frozenset[bytes]
    """The existing topics that the member subscribes to."""
    held: Partitions = NO_PARTITIONS
    """The last target assignment. No partition is held by two members."""
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Partitions]]
"""Takes the members by id and the number of partitions by topic id; returns the partitions of every member."""

BALANCE_ROUNDS: Final = 32
"""How often to even out all topics at most. Each round improves the balance; this limit bounds the work."""

_Assignment = dict[str, dict[bytes, set[int]]]


def assign_range(subscribers: Mapping[str, Subscriber], sizes: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Cut each topic into ranges of neighbouring partitions, one range for each subscriber, in a fixed order.

    Topics of the same size with the same subscribers are cut alike, so one member gets partitions with the same number.
    Static members come first, in the order of their instance ids, so a restart under another member id changes nothing.
    """
    order = sorted(subscribers, key=lambda id: (subscribers[id].instance_id is None, subscribers[id].instance_id or id))
    given: dict[str, dict[bytes, frozenset[int]]] = {id: {} for id in subscribers}
    for topic, members in _group_by_topic(order, subscribers):
        quota, extra = divmod(sizes[topic], len(members))
        start = 0
        for place, id in enumerate(members):
            end = start + quota + (place < extra)
            if start < end:
                given[id][topic] = frozenset(range(start, end))
            start = end
    return dict(given)


def assign_uniform(subscribers: Mapping[str, Subscriber], sizes: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Give all members the same number of partitions as far as subscriptions allow, and move as few as possible."""
    if not subscribers:
        return {}
    order = sorted(subscribers)
    topics = subscribers[order[0]].topics
    if all(subscribers[id].topics == topics for id in order):
        return _freeze(_assign_alike(order, subscribers, topics, sizes))
    return _freeze(_assign_mixed(order, subscribers, sizes))


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}


def _assign_alike(
    order: Sequence[str], subscribers: Mapping[str, Subscriber], topics: frozenset[bytes], sizes: Mapping[bytes, int]
) -> _Assignment:
    """All members subscribe to the same topics: each gets the same number, and some of them one more."""
    draft, free = _keep_what_is_valid(order, subscribers, sizes)
    quota, extra = divmod(sum(sizes[topic] for topic in topics), len(order))
    counts = {id: _count(draft[id]) for id in order}
    # The members that hold the most are those that get one more.
    richest = sorted(order, key=lambda id: (-counts[id], id))
    due = {id: quota + (place < extra) for place, id in enumerate(richest)}
    for id in order:
        free.extend(_give_back(draft[id], counts[id] - due[id]))
    free.sort(reverse=True)
    for id in order:
        for _ in range(due[id] - min(counts[id], due[id])):
            topic, partition = free.pop()
            draft[id].setdefault(topic, set()).add(partition)
    return draft


def _assign_mixed(
    order: Sequence[str], subscribers: Mapping[str, Subscriber], sizes: Mapping[bytes, int]
) -> _Assignment:
    """Members subscribe to different topics: assign what is free, then even out topic by topic."""
    draft, free = _keep_what_is_valid(order, subscribers, sizes)
    loads = {id: _count(draft[id]) for id in order}
    members_of = dict(_group_by_topic(order, subscribers))
    # Topics with few subscribers come first: the other topics can still even out the result.
    free.sort(key=lambda place: (len(members_of[place[0]]), place))
    topic_before, heap = b"", list[tuple[int, str]]()
    for topic, partition in free:
        if topic != topic_before:
            topic_before, heap = topic, [(loads[id], id) for id in members_of[topic]]
            heapify(heap)
        load, id = heap[0]
        draft[id].setdefault(topic, set()).add(partition)
        loads[id] = load + 1
        heapreplace(heap, (load + 1, id))
    by_scarcity = sorted(members_of, key=lambda topic: (len(members_of[topic]), topic))
    for _ in range(BALANCE_ROUNDS):
        if not sum(_even_out(topic, members_of[topic], draft, loads) for topic in by_scarcity):
            break
    return draft


def _even_out(topic: bytes, members: Sequence[str], draft: _Assignment, loads: dict[str, int]) -> int:
    """Move partitions of one topic from its busiest subscribers to the idlest. Returns the number of moves."""
    moves = 0
    idle = [(loads[id], id) for id in members]
    busy = [(-loads[id], id) for id in members if topic in draft[id]]
    heapify(idle)
    heapify(busy)
    while busy and -busy[0][0] - idle[0][0] > 1:
        giver, taker = busy[0][1], idle[0][1]
        if loads[giver] != -busy[0][0] or topic not in draft[giver]:
            # This entry is out of date: put it back with the load of now, or last if nothing is left to give.
            heapreplace(busy, (-loads[giver] if topic in draft[giver] else 0, giver))
            continue
        if loads[taker] != idle[0][0]:
            heapreplace(idle, (loads[taker], taker))
            continue
        partitions = draft[giver][topic]
        moved = max(partitions)
        partitions.remove(moved)
        if not partitions:
            del draft[giver][topic]
        draft[taker].setdefault(topic, set()).add(moved)
        loads[giver] -= 1
        loads[taker] += 1
        moves += 1
    return moves


def _keep_what_is_valid(
    order: Iterable[str], subscribers: Mapping[str, Subscriber], sizes: Mapping[bytes, int]
) -> tuple[_Assignment, list[TopicIdPartition]]:
    """Returns what members hold and still subscribe to, and every other subscribed partition."""
    draft: _Assignment = {}
    taken: dict[bytes, set[int]] = {}
    for id in order:
        subscriber = subscribers[id]
        for topic in subscriber.topics:
            taken.setdefault(topic, set())
        kept = draft[id] = {}
        for topic, partitions in subscriber.held.items():
            if topic in subscriber.topics:
                valid = {number for number in partitions if number < sizes[topic]} - taken[topic]
                taken[topic] |= valid
                if valid:
                    kept[topic] = valid
    free = [
        (topic, number)
        for topic, numbers in taken.items()
        if len(numbers) < sizes[topic]
        for number in range(sizes[topic])
        if number not in numbers
    ]
    return draft, free


def _give_back(kept: dict[bytes, set[int]], surplus: int) -> list[TopicIdPartition]:
    given: list[TopicIdPartition] = []
    while len(given) < surplus:
        topic = max(kept, key=lambda topic: (len(kept[topic]), topic))
        number = max(kept[topic])
        kept[topic].remove(number)
        if not kept[topic]:
            del kept[topic]
        given.append((topic, number))
    return given


def _group_by_topic(order: Sequence[str], subscribers: Mapping[str, Subscriber]) -> list[tuple[bytes, list[str]]]:
    """The subscribers of each topic, in order."""
    members: dict[bytes, list[str]] = {}
    for id in order:
        for topic in subscribers[id].topics:
            members.setdefault(topic, []).append(id)
    return sorted(members.items(), key=lambda item: item[0])


def _count(partitions: Mapping[bytes, set[int]]) -> int:
    return sum(map(len, partitions.values()))


def _freeze(draft: _Assignment) -> dict[str, Partitions]:
    return {id: {topic: frozenset(numbers) for topic, numbers in kept.items()} for id, kept in draft.items()}
