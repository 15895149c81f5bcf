"""One request of each admin API that succeeds in every version, for tests that go through all versions."""

from collections.abc import Callable

from ottla.wire.message import Message
from ottla.wire.messages import alter_configs, create_partitions, delete_records, describe_configs
from ottla.wire.messages import incremental_alter_configs as incremental
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.messages.describe_producers import DescribeProducersRequest
from ottla.wire.messages.describe_producers import TopicRequest as ProducersOfTopic
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.patience import PATIENCE_MS

TOPIC = 2
LITERAL, ANY_OPERATION, ANY_PERMISSION = 3, 1, 1
READ, ALLOW = 3, 3


def delete(version: int, topic: str) -> Message:
    partition = delete_records.DeleteRecordsPartition(offset=1)
    return delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=[partition])]
    )


def describe(version: int, topic: str) -> Message:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None
    )
    return describe_configs.DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=version >= 3
    )


def replace(version: int, topic: str) -> Message:
    config = alter_configs.AlterableConfig(name="retention.ms", value="5")
    resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])
    return alter_configs.AlterConfigsRequest(resources=[resource])


def alter(version: int, topic: str) -> Message:
    config = incremental.AlterableConfig(name="retention.ms", config_operation=0, value="5")
    resource = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])
    return incremental.IncrementalAlterConfigsRequest(resources=[resource])


def grow(version: int, topic: str) -> Message:
    return create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name=topic, count=2)], timeout_ms=PATIENCE_MS
    )


def create_acls(version: int, topic: str) -> Message:
    names = (topic, "another-topic")
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=TOPIC,
                resource_name=name,
                resource_pattern_type=LITERAL,
                principal="User:ann",
                host="*",
                operation=READ,
                permission_type=ALLOW,
            )
            for name in names
        ]
    )


def delete_acls(version: int, topic: str) -> Message:
    names = (topic, "another-topic")
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=TOPIC,
                resource_name_filter=name,
                operation=ANY_OPERATION,
                permission_type=ANY_PERMISSION,
            )
            for name in names
        ]
    )


def describe_acls(version: int, topic: str) -> Message:
    return DescribeAclsRequest(resource_type_filter=TOPIC, operation=ANY_OPERATION, permission_type=ANY_PERMISSION)


ADMIN_REQUESTS: dict[str, Callable[[int, str], Message]] = {
    "AlterConfigs": replace,
    "CreateAcls": create_acls,
    "CreatePartitions": grow,
    "DeleteAcls": delete_acls,
    "DeleteRecords": delete,
    "DescribeAcls": describe_acls,
    "DescribeCluster": lambda version, topic: DescribeClusterRequest(),
    "DescribeConfigs": describe,
    "DescribeLogDirs": lambda version, topic: DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=topic, partitions=[0])]
    ),
    "DescribeProducers": lambda version, topic: DescribeProducersRequest(
        topics=[ProducersOfTopic(name=topic, partition_indexes=[0])]
    ),
    "DescribeTopicPartitions": lambda version, topic: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)]),
    "IncrementalAlterConfigs": alter,
    "ListConfigResources": lambda version, topic: ListConfigResourcesRequest(),
    "UpdateFeatures": lambda version, topic: UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="metadata.version", max_version_level=30)]
    ),
}
