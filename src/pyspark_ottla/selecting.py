"""Which partitions a read covers and where it begins, from the options and the current metadata."""

from ottla.client.client import EARLIEST, Client
from ottla.client.groups import fetch_offsets
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition
from pyspark_ottla.boundaries import Offsets, OptionError, resolve_boundary
from pyspark_ottla.options import ReadOptions, Selection


def select_partitions(selection: Selection, client: Client) -> list[TopicPartition]:
    """The selected partitions in order. Raises KafkaError if a named topic or partition does not exist; a pattern may
    match nothing."""
    if selection.pattern:
        try:
            counts = client.count_partitions(pattern=selection.pattern)
        except ValueError as error:
            raise OptionError(f"subscribePattern: {error}") from None
        counts.pop(selection.without, None)
        return _list_all(counts)
    if selection.topics:
        return _list_all(client.count_partitions(selection.topics))
    counts = client.count_partitions({where.topic for where in selection.assigned})
    for where in selection.assigned:
        if where.partition >= counts[where.topic]:
            message = f"assign: {where.topic!r} has only {counts[where.topic]} partitions, and no {where.partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return list(selection.assigned)


def _list_all(counts: dict[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic in sorted(counts) for partition in range(counts[topic])]


def find_starting_offsets(options: ReadOptions, client: Client, partitions: list[TopicPartition]) -> Offsets:
    """Where a read begins. A group without a committed offset begins at the earliest record."""
    boundary = options.starting
    if not boundary.of_group:
        return resolve_boundary(
            boundary, client, partitions, isolation=options.isolation, latest_if_none=options.latest_if_none
        )
    committed = fetch_offsets(client, options.group, partitions)
    found = {where: committed[where].offset for where in partitions if where in committed}
    missing = {where: EARLIEST for where in partitions if where not in found}
    if missing:
        found.update((where, answer.offset) for where, answer in client.list_offsets(missing).items())
    return found


def check_dead_letters(topic: str | None, client: Client) -> None:
    """Raises KafkaError if the dead-letter topic does not exist: better now than at the first bad record."""
    if topic is not None:
        try:
            client.count_partitions([topic])
        except KafkaError as error:
            raise KafkaError(error.code, f"deadLetterTopic: {error.message}") from None
