"""Access rules through a library's admin client, on a broker without an authorizer."""

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as KafkaPythonResourceType
from kafka.errors import SecurityDisabledError

from ottla.errors import ErrorCode
from ottla.testing import LocalBroker

PATIENCE_S = 10.0
RULE = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:ann", "*")
ADDED = AclBinding(*RULE, AclOperation.READ, AclPermissionType.ALLOW)
ANY = AclBindingFilter(*RULE, AclOperation.ANY, AclPermissionType.ANY)


def test_confluent_kafka_is_told_that_security_is_disabled(broker: LocalBroker) -> None:
    # The error is the broker's SECURITY_DISABLED, not "unsupported by the broker" as for an API that is missing.
    # confluent-kafka 2.16 drops the error of DescribeAcls and finds no rules, against Apache Kafka too.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert admin.describe_acls(ANY).result(PATIENCE_S) == []
    for asked in (*admin.create_acls([ADDED]).values(), *admin.delete_acls([ANY]).values()):
        with pytest.raises(KafkaException) as raised:
            asked.result(PATIENCE_S)
        assert raised.value.args[0].code() == ErrorCode.SECURITY_DISABLED


def test_kafka_python_is_told_that_security_is_disabled(broker: LocalBroker) -> None:
    # DescribeAcls carries one error for the whole answer.
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    pattern = ResourcePatternFilter(KafkaPythonResourceType.TOPIC, "orders", ACLResourcePatternType.LITERAL)
    asked = ACLFilter("User:ann", "*", ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    try:
        with pytest.raises(SecurityDisabledError, match="No Authorizer is configured on the broker"):
            admin.describe_acls(asked)
    finally:
        admin.close()
