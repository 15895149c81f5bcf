"""Committed offsets of a task's sources, with the stream time of each source partition in the offset's metadata.

Kafka Streams keeps stream time in the same place. It must be committed together with the offset: whether a row is late
depends on it, and a restarted app must judge the next row as it would have been judged without the restart.
"""

import re
from collections.abc import Iterable

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, Client
from ottla.client.groups import CommittedOffset, fetch_offsets
from ottla.streams.errors import StreamsError
from ottla.streams.planning.plan import SubtopologyPlan
from ottla.streams.running.work import NO_TIME, Position
from ottla.topic_partition import TopicPartition

_METADATA = re.compile(r"stream-time=(-?\d+)")


def to_committed_offset(position: Position) -> CommittedOffset:
    return CommittedOffset(position.offset, f"stream-time={position.stream_time}")


def to_position(committed: CommittedOffset) -> Position:
    """Metadata that is not ours, such as that of an offset which was reset by a tool, means that no time is known."""
    found = _METADATA.fullmatch(committed.metadata)
    return Position(committed.offset, int(found[1]) if found else NO_TIME)


def read_positions(client: Client, plan: SubtopologyPlan, partitions: Iterable[int]) -> dict[int, list[Position]]:
    """The position of each source of these partitions' tasks. Called after their older owners were fenced.

    Waits for transactions that are about to end. Raises StreamsError if an offset is not there: `continuity.py` has
    committed where each task begins, so it was removed, perhaps together with the topic.
    """
    numbers = list(partitions)
    wanted = [TopicPartition(source.topic, number) for number in numbers for source in plan.sources]
    committed = fetch_offsets(client, plan.group, wanted, require_stable=True)
    for where in wanted:
        if where not in committed:
            raise StreamsError(f"{where}: the committed offset in group {plan.group!r} was removed while the app ran")
    first = client.list_offsets(dict.fromkeys(committed, EARLIEST))
    last = client.list_offsets(dict.fromkeys(committed, LATEST))
    for where, each in committed.items():
        if each.offset > last[where].offset:
            raise StreamsError(
                f"{where}: the app has read up to offset {each.offset}, and the topic ends at {last[where].offset}:"
                f" it was deleted and created again, or has lost records. ottla group reset {plan.group} sets it"
            )
        if each.offset < first[where].offset:
            raise StreamsError(
                f"{where}: the app has read up to offset {each.offset}, and the topic begins at {first[where].offset}:"
                f" the records between are gone. ottla group reset {plan.group} skips them"
            )
    found = {where: to_position(each) for where, each in committed.items()}
    return {number: [found[TopicPartition(source.topic, number)] for source in plan.sources] for number in numbers}


def find_starts(client: Client, plan: SubtopologyPlan, missing: list[TopicPartition]) -> dict[TopicPartition, Position]:
    """Where the user has said that a source begins."""
    latest = {source.topic for source in plan.sources if source.start == "latest"}
    found = client.list_offsets({where: EARLIEST for where in missing if where.topic not in latest})
    found |= client.list_offsets({where: LATEST for where in missing if where.topic in latest}, READ_COMMITTED)
    return {where: Position(each.offset, NO_TIME) for where, each in found.items()}


def find_first(client: Client, places: list[TopicPartition]) -> dict[TopicPartition, Position]:
    """Where the first record of each partition is."""
    found = client.list_offsets(dict.fromkeys(places, EARLIEST))
    return {where: Position(each.offset, NO_TIME) for where, each in found.items()}
