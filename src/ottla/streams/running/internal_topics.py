"""Topics that an app creates for itself: changelogs, repartition topics, derived tables, dead letters."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.client.client import Client, UnknownTopic
from ottla.client.groups import raise_for_errors
from ottla.errors import ErrorCode, KafkaError
from ottla.streams.errors import StreamsError
from ottla.streams.planning.plan import AppPlan, InternalTopic
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

CREATE_TIMEOUT_MS: Final = 30_000
COMPACT: Final = "compact"
CLUSTER_DEFAULT: Final = -1
"""The broker's default.replication.factor or num.partitions."""
_POLICY: Final = "cleanup.policy"
_TOPIC: Final = 2
"""The type of a topic among the resources that have settings."""
_SET: Final = 0
"""The operation of IncrementalAlterConfigs that sets a value."""


def list_external_topics(plan: AppPlan) -> list[str]:
    """Topics of the user: those that are read, and those with a fixed name that are written."""
    internal = {each.name for each in plan.internal_topics}
    sources = {source.topic for unit in plan.subtopologies for source in unit.sources}
    sinks = {sink.topic for unit in plan.subtopologies for sink in unit.sinks if sink.topic is not None}
    late = {step.late_topic for unit in plan.subtopologies for step in unit.steps if step.late_topic is not None}
    return sorted((sources | sinks | late) - internal)


def count_partitions(client: Client, topics: Iterable[str]) -> dict[str, int]:
    """StreamsError with the remedy if a topic does not exist."""
    try:
        return client.count_partitions(topics)
    except UnknownTopic as error:
        raise StreamsError(f"{error}; `ottla topic create` makes one") from None


def create_internal_topics(client: Client, plan: AppPlan, counts: Mapping[str, int]) -> dict[str, int]:
    """Create the internal topics that do not exist. Returns how many partitions each of them has.

    IncompatibleTopology is not raised here: `planning/compatibility.py` compares what the app was before with what it
    is now.
    """
    known = dict(counts)
    old_changelogs = []
    for topic in plan.internal_topics:
        wanted = topic.partitions or max(known[name] for name in topic.partitions_like)
        is_new = create_topic(client, topic.name, wanted, make_config(topic))
        if topic.is_compacted and not is_new:
            old_changelogs.append(topic.name)
        known[topic.name] = client.count_partitions([topic.name])[topic.name]
    keep_changelogs(client, old_changelogs)
    return {topic.name: known[topic.name] for topic in plan.internal_topics}


def create_topic(client: Client, name: str, partitions: int, config: Mapping[str, str]) -> bool:
    """Create a topic unless it exists. Returns whether it did not."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=CLUSTER_DEFAULT,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
            )
        ],
        timeout_ms=CREATE_TIMEOUT_MS,
    )
    for result in client.ask_any(request).topics:
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), f"cannot create topic {name!r}: {result.error_message}")
    return True


def make_config(topic: InternalTopic) -> dict[str, str]:
    """A changelog is compacted and nothing else, that of windows too: it is the state, and a broker that deletes by the
    wall clock would delete windows of old events before they were read back. A store deletes what has expired itself.
    Parcels are removed by the app once they were read, never by the broker."""
    if topic.is_compacted:
        return {"cleanup.policy": COMPACT, "message.timestamp.type": "CreateTime"}
    return {"cleanup.policy": "delete", "retention.ms": "-1", "message.timestamp.type": "CreateTime"}


def keep_changelogs(client: Client, topics: Sequence[str]) -> None:
    """Take the broker's right to delete records away from changelogs that have another policy: older versions of Ottla
    made those of windows so. An app that may not read the settings of its topics leaves them as they are."""
    resources = [
        DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=[_POLICY])
        for topic in topics
    ]
    if not resources:
        return
    answer = client.ask_any(DescribeConfigsRequest(resources=resources))
    change = AlterableConfig(name=_POLICY, config_operation=_SET, value=COMPACT)
    wrong = [
        AlterConfigsResource(resource_type=_TOPIC, resource_name=found.resource_name, configs=[change])
        for found in answer.results
        if any(each.name == _POLICY and each.value != COMPACT for each in found.configs)
    ]
    if wrong:
        changed = client.ask_any(IncrementalAlterConfigsRequest(resources=wrong))
        raise_for_errors(changed, f"cannot set {_POLICY}={COMPACT} for the changelog {wrong[0].resource_name!r}")


def purge(client: Client, offsets: Mapping[TopicPartition, int]) -> None:
    """Delete the records before these offsets, which were read and will not be needed again."""
    for where, offset in offsets.items():
        partition = DeleteRecordsPartition(partition_index=where.partition, offset=offset)
        topic = DeleteRecordsTopic(name=where.topic, partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=CREATE_TIMEOUT_MS)
        raise_for_errors(client.ask_leader(*where, request), f"cannot delete read records of {where}")


def delete_topics(client: Client, names: Iterable[str]) -> list[str]:
    """Delete topics; those that do not exist are left out of the result."""
    deleted = []
    for name in names:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=CREATE_TIMEOUT_MS
        )
        answer = client.ask_any(request)
        for result in answer.responses:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise KafkaError(ErrorCode(result.error_code), f"cannot delete topic {name!r}")
            if not result.error_code:
                deleted.append(name)
    return deleted
