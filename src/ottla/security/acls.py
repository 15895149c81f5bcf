"""ACLs: who may do what from where, filters that select some of them, and the set of all ACLs of a cluster.

An `AclSet` never changes: `add` and `remove` return another one that shares what did not change. ACLs are kept by their
resource pattern, so those that concern a resource are found with a few lookups: its literal name, the wildcard, and its
prefixes of the lengths that prefixed ACLs have.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from immutables import Map

from ottla.security.operations import WILDCARD, Operation, PatternType, Permission, ResourceType

CHECKSUM_BYTES = 32

_Pattern = tuple[int, int, str]
"""Resource type, pattern type and name."""


class Acl(NamedTuple):
    """One rule. A prefixed one concerns every resource whose name begins with `name`."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @property
    def pattern(self) -> _Pattern:
        return (self.resource_type, self.pattern_type, self.name)


class AclFilter(NamedTuple):
    """Selects ACLs. None, and the ANY of an enumeration, match everything.

    A filter with the pattern type MATCH selects what concerns the resource `name`: literal, prefixed and wildcard ACLs.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, WILDCARD)


class AclSet:
    """All ACLs of a cluster. Two sets with the same ACLs are equal and have the same checksum."""

    __slots__ = ("_by_pattern", "_lengths", "_prefixes", "checksum", "count")

    def __init__(
        self,
        by_pattern: "Map[_Pattern, frozenset[Acl]]" = Map(),  # noqa: B008 - it never changes
        prefixes: "Map[tuple[int, int], int]" = Map(),  # noqa: B008
        count: int = 0,
        checksum: int = 0,
    ) -> None:
        self._by_pattern = by_pattern
        self._prefixes = prefixes  # (resource type, length) -> how many prefixed patterns of that length there are
        self._lengths: dict[int, list[int]] = {}
        self.count = count
        self.checksum = checksum
        """The sum of the hashes of all ACLs. It does not depend on their order, and each change costs one hash."""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, AclSet) and self._by_pattern == other._by_pattern)

    def __hash__(self) -> int:
        return hash(self.checksum)

    def __len__(self) -> int:
        return self.count

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._by_pattern.get(acl.pattern, ())

    def __iter__(self) -> Iterator[Acl]:
        """Every ACL, in an order that depends on the ACLs alone."""
        for pattern in sorted(self._by_pattern):
            yield from sorted(self._by_pattern[pattern])

    def add(self, acl: Acl) -> "AclSet":
        before = self._by_pattern.get(acl.pattern)
        if before is None:
            before, prefixes = frozenset(), self._count_prefix(acl, 1)
        elif acl in before:
            return self
        else:
            prefixes = self._prefixes
        checksum = (self.checksum + _hash(acl)) % (1 << 8 * CHECKSUM_BYTES)
        return AclSet(self._by_pattern.set(acl.pattern, before | {acl}), prefixes, self.count + 1, checksum)

    def remove(self, acl: Acl) -> "AclSet":
        before = self._by_pattern.get(acl.pattern, frozenset())
        if acl not in before:
            return self
        left = before - {acl}
        checksum = (self.checksum - _hash(acl)) % (1 << 8 * CHECKSUM_BYTES)
        if left:
            return AclSet(self._by_pattern.set(acl.pattern, left), self._prefixes, self.count - 1, checksum)
        by_pattern, prefixes = self._by_pattern.delete(acl.pattern), self._count_prefix(acl, -1)
        return AclSet(by_pattern, prefixes, self.count - 1, checksum)

    def find(self, resource_type: int, name: str) -> Iterator[Acl]:
        """Every ACL that concerns a resource."""
        by_pattern = self._by_pattern
        yield from by_pattern.get((resource_type, PatternType.LITERAL, name), ())
        if name != WILDCARD:
            yield from by_pattern.get((resource_type, PatternType.LITERAL, WILDCARD), ())
        for length in self._list_prefix_lengths(resource_type):
            if length > len(name):
                break
            yield from by_pattern.get((resource_type, PatternType.PREFIXED, name[:length]), ())

    def select(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that a filter matches, in order."""
        if wanted.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED) and wanted.name is not None:
            types = [each for each in ResourceType if wanted.resource_type in (ResourceType.ANY, each)]
            candidates: Iterable[Acl] = [
                acl
                for resource_type in types
                for acl in sorted(self._by_pattern.get((resource_type, wanted.pattern_type, wanted.name), ()))
            ]
        else:
            candidates = self
        return [acl for acl in candidates if wanted.matches(acl)]

    def of_type(self, resource_type: int) -> Iterator[Acl]:
        """Every ACL for resources of a type, in no order."""
        for pattern, acls in self._by_pattern.items():
            if pattern[0] == resource_type:
                yield from acls

    def _list_prefix_lengths(self, resource_type: int) -> list[int]:
        known = self._lengths.get(resource_type)
        if known is None:
            known = sorted(length for kind, length in self._prefixes if kind == resource_type)
            self._lengths[resource_type] = known
        return known

    def _count_prefix(self, acl: Acl, step: int) -> "Map[tuple[int, int], int]":
        if acl.pattern_type != PatternType.PREFIXED:
            return self._prefixes
        key = (int(acl.resource_type), len(acl.name))
        count = self._prefixes.get(key, 0) + step
        return self._prefixes.set(key, count) if count else self._prefixes.delete(key)


NO_ACLS = AclSet()


def _hash(acl: Acl) -> int:
    numbers = tuple(map(int, (acl.resource_type, acl.pattern_type, acl.operation, acl.permission)))
    text = repr((*numbers, acl.name, acl.principal, acl.host))
    return int.from_bytes(sha256(text.encode()).digest(), "big")
