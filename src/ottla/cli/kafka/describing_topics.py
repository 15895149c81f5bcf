"""`ottla kafka topics --describe`: a line for each topic, with its settings, and one for each partition."""

import argparse
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.cluster.overview import Candidates, Reassignment, fetch_candidates, list_reassignments
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.kafka.flags import fetch_metadata, require_topics
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.wire.messages.metadata import MetadataResponseTopic

TOPIC_RESOURCE = 2
DEFAULT_SOURCE = 5
TOPICS_AT_ONCE = 500
MIN_IN_SYNC = "min.insync.replicas"
NOT_KNOWN = "N/A"


class Choice(NamedTuple):
    """Which partitions are shown."""

    under_replicated: bool
    unavailable: bool
    under_min_isr: bool
    at_min_isr: bool

    def fits(self, partition: Any, moving: Reassignment | None, min_in_sync: int, alive: set[int]) -> bool:
        if not any(self):
            return True
        replicas = len(partition.replica_nodes) - (len(moving.adding) if moving is not None else 0)
        in_sync = len(partition.isr_nodes)
        return (
            (self.under_replicated and in_sync < replicas)
            or (self.unavailable and partition.leader_id not in alive)
            or (self.under_min_isr and (partition.leader_id < 0 or in_sync < min_in_sync))
            or (self.at_min_isr and in_sync == min_in_sync)
        )


def describe(client: "Client", options: argparse.Namespace) -> None:
    topics = _choose_topics(client, options)
    settings = fetch_topic_settings(client, topics)
    candidates = fetch_candidates(client, topics)
    moving = {each.where: each for each in list_reassignments(client)}
    alive = set(client.list_brokers())
    choice = Choice(
        options.under_replicated_partitions,
        options.unavailable_partitions,
        options.under_min_isr_partitions,
        options.at_min_isr_partitions,
    )
    for name, topic in topics.items():
        own = {each.name: each.value for each in settings[name] if each.config_source != DEFAULT_SOURCE}
        if options.topics_with_overrides and not own:
            continue
        if not any(choice):
            _print_topic(topic, own, moving)
        if options.topics_with_overrides:
            continue
        min_in_sync = next((int(each.value) for each in settings[name] if each.name == MIN_IN_SYNC), 1)
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index):
            where = TopicPartition(name, partition.partition_index)
            if choice.fits(partition, moving.get(where), min_in_sync, alive):
                _print_partition(where, partition, moving.get(where), candidates.get(where, (None, None)))


def _choose_topics(client: "Client", options: argparse.Namespace) -> "dict[str, MetadataResponseTopic]":
    if options.topic_id is not None:
        wanted = _parse_id(options.topic_id)
        found = {topic.name or "": topic for topic in fetch_metadata(client).topics if topic.topic_id == wanted}
        if not found and not options.if_exists:
            raise CommandError(f"topic id {options.topic_id!r} does not exist")
        return found
    return require_topics(client, options)


def _parse_id(text: str) -> bytes:
    try:
        found = urlsafe_b64decode(text + "==")
    except ValueError:
        found = b""
    if len(found) != 16:
        raise CommandError(f"--topic-id: {text!r} is not the id of a topic", USAGE_ERROR)
    return found


def format_id(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def fetch_topic_settings(client: "Client", topics: Iterable[str]) -> dict[str, list[Any]]:
    """All settings of these topics, in the order of their names; none of a topic that the client may not ask about."""
    from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    names = list(topics)
    found: dict[str, list[Any]] = {name: [] for name in names}
    for first in range(0, len(names), TOPICS_AT_ONCE):
        asked = [
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
            for name in names[first : first + TOPICS_AT_ONCE]
        ]
        for result in client.ask_any(DescribeConfigsRequest(resources=asked)).results:
            if not result.error_code:
                found[result.resource_name] = sorted(result.configs, key=lambda each: each.name)
    return found


def _print_topic(
    topic: "MetadataResponseTopic", settings: dict[str, str], moving: dict[TopicPartition, Reassignment]
) -> None:
    replicas = 0
    if topic.partitions:
        first = topic.partitions[0]
        adding = moving.get(TopicPartition(topic.name or "", first.partition_index))
        replicas = len(first.replica_nodes) - (len(adding.adding) if adding is not None else 0)
    facts = [f"Topic: {topic.name}"]
    if any(topic.topic_id):
        facts.append(f"TopicId: {format_id(topic.topic_id)}")
    facts += [f"PartitionCount: {len(topic.partitions)}", f"ReplicationFactor: {replicas}"]
    facts.append(f"Configs: {','.join(f'{name}={value}' for name, value in settings.items())}")
    print("\t".join(facts))


def _print_partition(
    where: TopicPartition, partition: Any, moving: Reassignment | None, candidates: Candidates
) -> None:
    facts = [
        "",
        f"Topic: {where.topic}",
        f"Partition: {where.partition}",
        f"Leader: {partition.leader_id if partition.leader_id >= 0 else 'none'}",
        f"Replicas: {_join(partition.replica_nodes)}",
        f"Isr: {_join(partition.isr_nodes)}",
    ]
    if moving is not None:
        facts += [f"Adding Replicas: {_join(moving.adding)}", f"Removing Replicas: {_join(moving.removing)}"]
    eligible, last_known = candidates
    facts.append(f"Elr: {NOT_KNOWN if eligible is None else _join(eligible)}")
    facts.append(f"LastKnownElr: {NOT_KNOWN if last_known is None else _join(last_known)}")
    print("\t".join(facts))


def _join(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
