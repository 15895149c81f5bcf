"""Rights: an operation on a type of resource. Handlers declare which ones their API needs (`REQUIRES`).

`whole(right)`: dispatch checks the right before the handler runs, and refuses the whole request without it. Only rights
on the cluster are checked this way. `parts(rights...)`: the handler checks each topic, group or transactional id that
the request names, and answers those that are not allowed with an error. `NOTHING`: everybody may send it.
"""

from typing import Final

from ottla.security.operations import Operation, ResourceType


class Right:
    """An operation on a type of resource. There is one object for each, so that it is a cheap key."""

    __slots__ = ("operation", "resource_type")

    def __init__(self, operation: Operation, resource_type: ResourceType) -> None:
        self.operation: Final = operation
        self.resource_type: Final = resource_type

    def __repr__(self) -> str:
        return f"{self.operation.name} on {self.resource_type.name}"


READ_TOPIC = Right(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC = Right(Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC = Right(Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC = Right(Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC = Right(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC = Right(Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_CONFIGS_OF_TOPIC = Right(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_CONFIGS_OF_TOPIC = Right(Operation.ALTER_CONFIGS, ResourceType.TOPIC)

READ_GROUP = Right(Operation.READ, ResourceType.GROUP)
DELETE_GROUP = Right(Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP = Right(Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_CONFIGS_OF_GROUP = Right(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_CONFIGS_OF_GROUP = Right(Operation.ALTER_CONFIGS, ResourceType.GROUP)

CREATE_CLUSTER = Right(Operation.CREATE, ResourceType.CLUSTER)
DELETE_CLUSTER = Right(Operation.DELETE, ResourceType.CLUSTER)
ALTER_CLUSTER = Right(Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER = Right(Operation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION = Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CONFIGS_OF_CLUSTER = Right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CONFIGS_OF_CLUSTER = Right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE = Right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)

WRITE_TRANSACTIONAL_ID = Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)

DESCRIBE_TOKEN = Right(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
CREATE_TOKENS_OF_USER = Right(Operation.CREATE_TOKENS, ResourceType.USER)
DESCRIBE_TOKENS_OF_USER = Right(Operation.DESCRIBE_TOKENS, ResourceType.USER)


class Requirement:
    """What an API needs, as its handler declares it."""

    __slots__ = ("is_whole", "rights")

    def __init__(self, *rights: Right, is_whole: bool) -> None:
        self.rights: Final = rights
        self.is_whole: Final = is_whole

    def __repr__(self) -> str:
        return " or ".join(map(repr, self.rights)) if self.rights else "nothing"


def whole(*alternatives: Right) -> Requirement:
    """One of these rights on the cluster, or the whole request is refused."""
    assert all(right.resource_type is ResourceType.CLUSTER for right in alternatives)
    return Requirement(*alternatives, is_whole=True)


def parts(*rights: Right) -> Requirement:
    """The rights that the handler itself checks, for each thing that a request names."""
    return Requirement(*rights, is_whole=False)


NOTHING = Requirement(is_whole=False)
