"""Deciders for ACLs: create some, delete those that filters match. A refused ACL does not affect the others."""

from collections.abc import Sequence

from ottla.cluster.changes import AddAcl, RemoveAcl
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.errors import ErrorCode, KafkaError
from ottla.security.acls import Acl, AclFilter
from ottla.security.operations import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

CHANGES_MAX = 10_000
"""ACLs that one request can create or delete, as in Kafka."""


def create_acls(image: Image, acls: Sequence[Acl]) -> Decision[list[KafkaError | None]]:
    """Create the ACLs that are valid and do not exist yet. The result has an error, or None, for each ACL."""
    results: list[KafkaError | None] = []
    new: dict[Acl, None] = {}
    for acl in acls:
        problem = find_problem(acl)
        results.append(None if problem is None else KafkaError(ErrorCode.INVALID_REQUEST, problem))
        if problem is None and acl not in image.acls:
            new[acl] = None
    _check_number(len(new))
    return Decision([AddAcl(acl) for acl in new], results)


def delete_acls(image: Image, filters: Sequence[AclFilter]) -> Decision[list[list[Acl]]]:
    """Delete the ACLs that the filters match. The result has the ACLs that each filter matched."""
    matched = [image.acls.select(each) for each in filters]
    gone = dict.fromkeys(acl for acls in matched for acl in acls)
    _check_number(len(gone))
    return Decision([RemoveAcl(acl) for acl in gone], matched)


def find_problem(acl: Acl) -> str | None:
    """Why there cannot be such an ACL, in one line; None if there can."""
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    if acl.resource_type == ResourceType.ANY:
        return "Invalid resourceType ANY"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    if acl.operation == Operation.ANY:
        return "Invalid operation ANY"
    if acl.permission == Permission.ANY:
        return "Invalid permissionType ANY"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return None


def _check_number(count: int) -> None:
    if count > CHANGES_MAX:
        message = f"one request cannot change more than {CHANGES_MAX} ACLs; this one would change {count}"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
