"""Changes topics: create, add partitions, delete, purge, clone."""

from collections.abc import Mapping

from ottla.client.client import EARLIEST, LATEST, Client
from ottla.client.groups import raise_for_errors
from ottla.client.sending import Sender
from ottla.console.facts.metadata import Snapshot
from ottla.console.facts.offsets import list_offsets
from ottla.console.facts.records import read_range
from ottla.console.facts.sending import encode_records
from ottla.console.facts.settings import TOPIC, raise_for_code, read_settings
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

TIMEOUT_MS = 15_000
BROKER_DEFAULT = -1
CLONE_RECORDS_MAX = 100_000
CLONE_BATCH = 500


def create_topic(
    client: Client, name: str, partitions: int, replicas: int, settings: Mapping[str, str], *, dry_run: bool = False
) -> None:
    configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=configs)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=dry_run)
    for each in client.ask_controller(request).topics:
        raise_for_code(each.error_code, each.error_message, name)


def add_partitions(client: Client, name: str, count: int) -> None:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    for each in client.ask_controller(CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)).results:
        raise_for_code(each.error_code, each.error_message, name)
    client.forget_topic(name)


def delete_topic(client: Client, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=TIMEOUT_MS)
    for each in client.ask_controller(request).responses:
        raise_for_code(each.error_code, each.error_message, name)
    client.forget_topic(name)


def purge(client: Client, snapshot: Snapshot, name: str, partitions: list[int] | None = None) -> int:
    """Delete all records of a topic. Returns how many offsets were given up."""
    chosen = [
        each.number for each in snapshot.topic(name).partitions if partitions is None or each.number in partitions
    ]
    wanted = [TopicPartition(name, number) for number in chosen]
    first = list_offsets(client, snapshot, wanted, EARLIEST)
    end = list_offsets(client, snapshot, wanted, LATEST)
    removed = 0
    for where, last in end.items():
        if last > first.get(where, last):
            part = DeleteRecordsPartition(partition_index=where.partition, offset=last)
            topic = DeleteRecordsTopic(name=name, partitions=[part])
            request = DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
            raise_for_errors(client.ask_leader(name, where.partition, request), f"purge of {where}")
            removed += last - first[where]
    return removed


def clone(client: Client, snapshot: Snapshot, name: str, copy: str, *, with_records: bool) -> int:
    """Create a topic with the same partitions and settings, and copy the records if wanted. Returns how many."""
    topic = snapshot.topic(name)
    own = {each.name: each.value or "" for each in read_settings(client, TOPIC, name) if each.is_own}
    create_topic(client, copy, len(topic.partitions), topic.replication, own)
    if not with_records:
        return 0
    wanted = [TopicPartition(name, each.number) for each in topic.partitions]
    first = list_offsets(client, snapshot, wanted, EARLIEST)
    end = list_offsets(client, snapshot, wanted, LATEST)
    sender = Sender(client)
    copied = 0
    for where in wanted:
        if where not in first or where not in end:
            continue
        batch = []
        for found in read_range(client, where, first[where], end[where]):
            batch.append((found.key, found.value, found.headers, found.timestamp))
            if len(batch) == CLONE_BATCH:
                sender.send(encode_records(copy, where.partition, batch))
                copied += len(batch)
                batch = []
            if copied >= CLONE_RECORDS_MAX:
                break
        if batch:
            sender.send(encode_records(copy, where.partition, batch))
            copied += len(batch)
    sender.flush()
    return copied
