"""Decides what a client may do, by the rules of Kafka's StandardAuthorizer.

A super user may do everything. Otherwise the ACLs that concern the resource decide: one that denies wins over all that
allow. If none matches, the client may not; unless there is no ACL at all for the resource and
allow.everyone.if.no.acl.found is set. To be allowed READ, WRITE, DELETE or ALTER is to be allowed DESCRIBE, and
ALTER_CONFIGS includes DESCRIBE_CONFIGS. To be denied them denies nothing else.

Decisions are remembered until an ACL changes.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol

from ottla.security.acls import NO_ACLS, Acl, AclSet
from ottla.security.operations import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.principal import Principal
from ottla.security.rights import Right

EVERYBODY = "User:*"

DECISIONS_MAX = 100_000
"""Decisions that are remembered. Above it all are forgotten: clients can ask for any number of names."""
REMEMBERED_NAME_LENGTH_MAX = 249
"""The longest name whose decisions are remembered: that of a topic. Groups may have names of 32 KB, which would take
gigabytes."""

_INCLUDED = {
    Operation.DESCRIBE: frozenset((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALTER_CONFIGS,)),
}
"""Operations whose permission includes the permission for the key."""

_ANY_NAME = "hardcode"
"""A name by which Kafka finds out whether a client may do something on whatever resource. The name is part of the
semantics: an ACL for it counts."""


class Client(Protocol):
    """The client whose rights are checked: who it is, and from which address it connects."""

    @property
    def principal(self) -> Principal: ...

    @property
    def address(self) -> str: ...


class Verdict(NamedTuple):
    """A decision and what it is based on: an ACL, or one of the rules without ACLs."""

    allowed: bool
    rule: str
    acl: Acl | None = None


SUPER_USER = Verdict(True, "SuperUser")
DEFAULT_ALLOW = Verdict(True, "DefaultAllow")
DEFAULT_DENY = Verdict(False, "DefaultDeny")


class Authorizer:
    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._if_no_acl = DEFAULT_ALLOW if allow_if_no_acl else DEFAULT_DENY
        self._decisions: dict[tuple[object, str, Principal, str], bool] = {}
        self.acls: AclSet = NO_ACLS
        """Replaced by `follow`. While it is the same object, every decision is the same."""

    def follow(self, acls: AclSet) -> None:
        """The ACLs that count from now on."""
        if acls is not self.acls:
            self.acls = acls
            self._decisions = {}

    def allows(self, client: Client, right: Right, name: str = CLUSTER_NAME) -> bool:
        key = (right, name, client.principal, client.address)
        decided = self._decisions.get(key)
        if decided is None:
            decided = self._remember(key, self.judge(client, right.operation, right.resource_type, name).allowed)
        return decided

    def allows_any(self, client: Client, right: Right) -> bool:
        """Whether there is at least one resource, existing or not, on which the client has the right."""
        key = (any, repr(right), client.principal, client.address)
        decided = self._decisions.get(key)
        if decided is None:
            decided = self._remember(key, self._judge_any(client, right))
        return decided

    def list_operations(self, client: Client, resource_type: ResourceType, name: str) -> int:
        """The operations on a resource that the client may do, as the protocol encodes them (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.judge(client, operation, resource_type, name).allowed
        )

    def judge(self, client: Client, operation: Operation, resource_type: ResourceType, name: str) -> Verdict:
        """The decision with its reason, by the ACLs of this moment."""
        principal, hosts = str(client.principal), spell_host(client.address)
        if principal in self._super_users:
            return SUPER_USER
        verdict, has_acls = None, False
        for acl in self.acls.find(resource_type, name):
            has_acls = True
            if not _concerns(acl, principal, hosts, operation):
                continue
            if acl.permission == Permission.DENY:
                return Verdict(False, "MatchingAcl", acl)
            verdict = verdict or Verdict(True, "MatchingAcl", acl)
        if verdict is not None:
            return verdict
        return DEFAULT_DENY if has_acls else self._if_no_acl

    def _judge_any(self, client: Client, right: Right) -> bool:
        if self.judge(client, right.operation, right.resource_type, _ANY_NAME).allowed:
            return True
        allowed: list[Acl] = []
        denied: set[tuple[PatternType, str]] = set()
        for acl in self._find_exact(client, right):
            if acl.permission == Permission.ALLOW:
                allowed.append(acl)
            else:
                denied.add((acl.pattern_type, acl.name))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_covered(acl, denied) for acl in allowed)

    def _find_exact(self, client: Client, right: Right) -> Iterator[Acl]:
        """ACLs that name the operation, or all operations, and concern the client. Included operations do not count."""
        principals, hosts = (str(client.principal), EVERYBODY), spell_host(client.address)
        for acl in self.acls.of_type(right.resource_type):
            if acl.principal in principals and acl.host in hosts and acl.operation in (right.operation, Operation.ALL):
                yield acl

    def _remember(self, key: tuple[object, str, Principal, str], decided: bool) -> bool:
        if len(key[1]) > REMEMBERED_NAME_LENGTH_MAX:
            return decided
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[key] = decided
        return decided


@lru_cache(10_000)
def spell_host(address: str) -> tuple[str, ...]:
    """The hosts of ACLs that are about this address. Java writes IPv6 without `::`, and an IPv4 address that reaches a
    socket of both kinds as IPv4."""
    if ":" not in address:
        return (address, WILDCARD)
    from ipaddress import IPv6Address  # imported late: most brokers never see such an address

    try:
        parsed = IPv6Address(address)
    except ValueError:
        return (address, WILDCARD)
    if parsed.ipv4_mapped is not None:
        return (str(parsed.ipv4_mapped), address, WILDCARD)
    groups = parsed.packed[:16]
    spelled = ":".join(f"{groups[at] << 8 | groups[at + 1]:x}" for at in range(0, 16, 2))
    return (spelled + (f"%{parsed.scope_id}" if parsed.scope_id else ""), address, WILDCARD)


def _concerns(acl: Acl, principal: str, hosts: tuple[str, ...], operation: Operation) -> bool:
    """Whether an ACL of the resource is about this client and operation."""
    if acl.principal not in (principal, EVERYBODY) or acl.host not in hosts:
        return False
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission == Permission.ALLOW and acl.operation in _INCLUDED.get(operation, ())


def _is_covered(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether everything that the ACL allows is denied. A wildcard is never covered by the denial of single names."""
    if acl.pattern_type == PatternType.LITERAL and acl.name == WILDCARD:
        return False
    if acl.pattern_type == PatternType.LITERAL and (PatternType.LITERAL, acl.name) in denied:
        return True
    return any((PatternType.PREFIXED, acl.name[:length]) in denied for length in range(1, len(acl.name) + 1))
