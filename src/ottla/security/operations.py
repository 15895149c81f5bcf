"""What an ACL consists of, with Kafka's numbers: operations, resource types, pattern types, permissions; and sets of
operations as the protocol encodes them: one bit each."""

from collections.abc import Iterable
from enum import IntEnum


class Operation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of an ACL matches the name of a resource. ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

WILDCARD = "*"
"""Means every resource as the name of a literal ACL, and every host as its host."""


def bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
}
"""The operations on each type of resource for which clients can ask what they may do (KIP-430)."""

ON_TOPIC = bits(OPERATIONS[ResourceType.TOPIC])
"""All operations on a topic. Without an authorizer every client may do all of them."""

ON_CLUSTER = bits(OPERATIONS[ResourceType.CLUSTER])
ON_GROUP = bits(OPERATIONS[ResourceType.GROUP])
