"""The authorizer against a naive model: random ACLs, added and removed, and every question about every resource."""

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster.acls import create_acls, delete_acls
from ottla.cluster.image import EMPTY, Image
from ottla.errors import KafkaError
from ottla.security import rights
from ottla.security.acls import NO_ACLS, Acl, AclFilter, AclSet
from ottla.security.authorizer import DECISIONS_MAX, Authorizer, spell_host
from ottla.security.operations import OPERATIONS, Operation, PatternType, Permission, ResourceType
from ottla.security.principal import Principal
from tests.unit.cluster.histories import random_acl

NAMES = ("*", "a", "ab", "abc", "abcd", "b", "c", "hardcode", "")
RIGHTS = (
    rights.READ_TOPIC,
    rights.WRITE_TOPIC,
    rights.DESCRIBE_TOPIC,
    rights.DESCRIBE_CONFIGS_OF_TOPIC,
    rights.DELETE_TOPIC,
    rights.READ_GROUP,
    rights.DESCRIBE_GROUP,
)


class Client(NamedTuple):
    principal: Principal
    address: str


CLIENTS = [
    Client(Principal(kind, name), host)
    for kind, name in (("User", "alice"), ("User", "bob"), ("User", "carol"), ("Group", "alice"), ("User", "*"))
    for host in ("10.0.0.1", "10.0.0.2")
]


def concerns(acl: Acl, resource_type: ResourceType, name: str) -> bool:
    """Whether an ACL is for a resource, as the documentation of Kafka says it."""
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name == "*" or acl.name == name


def model(acls: set[Acl], client: Client, right: rights.Right, name: str, *, allow_if_no_acl: bool) -> bool:
    """What a client may do, in the plainest words: look at all ACLs."""
    of_resource = [acl for acl in acls if concerns(acl, right.resource_type, name)]
    if not of_resource:
        return allow_if_no_acl
    mine = [
        acl
        for acl in of_resource
        if acl.principal in ("User:*", f"{client.principal.type}:{client.principal.name}")
        and acl.host in ("*", client.address)
    ]
    wanted = right.operation
    for acl in mine:
        if acl.permission == Permission.DENY and acl.operation in (wanted, Operation.ALL):
            return False
    enough = {wanted, Operation.ALL}
    if wanted == Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if wanted == Operation.DESCRIBE_CONFIGS:
        enough |= {Operation.ALTER_CONFIGS}
    return any(acl.permission == Permission.ALLOW and acl.operation in enough for acl in mine)


def change(image: Image, decision: object) -> Image:
    return image.replay(image.version + 1, decision.changes)  # type: ignore[attr-defined]


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=60, deadline=None)
def test_random_acls_decide_as_the_model_says(seed: int, allow_if_no_acl: bool) -> None:
    """Also after some are removed (CVE-2024-27309: with one, others of the same resource were lost), and in an image
    that was read from a snapshot."""
    source = random.Random(seed)
    image, acls = EMPTY, set[Acl]()
    authorizer = Authorizer(["User:carol"], allow_if_no_acl=allow_if_no_acl)
    for _ in range(source.randint(1, 8)):
        if acls and source.random() < 0.5:
            gone = source.choice(sorted(acls))
            image = change(image, delete_acls(image, [AclFilter(*gone)]))
            acls.discard(gone)
        else:
            new = [random_acl(source) for _ in range(source.randint(1, 5))]
            image = change(image, create_acls(image, new))
            acls.update(new)
        if source.random() < 0.3:
            image = EMPTY.replay(image.version, image.snapshot())
        assert set(image.acls) == acls
        assert len(image.acls) == len(acls)
        authorizer.follow(image.acls)
        for client in CLIENTS:
            for right in RIGHTS:
                for name in NAMES:
                    expected = client.principal.name == "carol" or model(
                        acls, client, right, name, allow_if_no_acl=allow_if_no_acl
                    )
                    assert authorizer.allows(client, right, name) is expected, (sorted(acls), client, right, name)
                    assert authorizer.allows(client, right, name) is expected  # from memory


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_the_order_of_changes_leaves_no_trace(seed: int) -> None:
    """Equal sets have equal checksums and find the same, however they came about."""
    source = random.Random(seed)
    wanted = {random_acl(source) for _ in range(source.randint(0, 12))}
    passing = {random_acl(source) for _ in range(source.randint(0, 12))} - wanted
    first, second = NO_ACLS, NO_ACLS
    for acl in source.sample(sorted(wanted), len(wanted)):
        first = first.add(acl)
    for acl in source.sample(sorted(wanted | passing), len(wanted | passing)):
        second = second.add(acl)
    for acl in source.sample(sorted(passing), len(passing)):
        second = second.remove(acl)
    assert first == second
    assert first.checksum == second.checksum
    for name in NAMES:
        assert sorted(first.find(ResourceType.TOPIC, name)) == sorted(second.find(ResourceType.TOPIC, name))
        assert sorted(first.find(ResourceType.TOPIC, name)) == sorted(
            acl for acl in wanted if concerns(acl, ResourceType.TOPIC, name)
        )


FILTERS = [
    AclFilter(),
    AclFilter(ResourceType.TOPIC, "ab", PatternType.MATCH),
    AclFilter(ResourceType.TOPIC, "ab", PatternType.LITERAL),
    AclFilter(ResourceType.ANY, "ab", PatternType.PREFIXED),
    AclFilter(ResourceType.ANY, "*", PatternType.ANY),
    AclFilter(ResourceType.GROUP, None, PatternType.MATCH),
    AclFilter(ResourceType.GROUP, None, PatternType.LITERAL, principal="User:alice"),
    AclFilter(host="10.0.0.1", operation=Operation.READ),
    AclFilter(permission=Permission.DENY),
]


def filtered(wanted: AclFilter, acl: Acl) -> bool:
    """What a filter matches, one condition after the other."""
    if wanted.resource_type != ResourceType.ANY and wanted.resource_type != acl.resource_type:
        return False
    if wanted.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED) and wanted.pattern_type != acl.pattern_type:
        return False
    if wanted.name is not None:
        if wanted.pattern_type == PatternType.MATCH:
            if not concerns(acl, acl.resource_type, wanted.name):
                return False
        elif wanted.name != acl.name:
            return False
    pairs = (
        (wanted.principal, acl.principal, None),
        (wanted.host, acl.host, None),
        (wanted.operation, acl.operation, Operation.ANY),
        (wanted.permission, acl.permission, Permission.ANY),
    )
    return all(asked in (everything, is_) for asked, is_, everything in pairs)


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_filters_select_as_the_model_says(seed: int) -> None:
    source = random.Random(seed)
    acls = {random_acl(source) for _ in range(20)}
    found = AclSet()
    for acl in sorted(acls):
        found = found.add(acl)
    for wanted in FILTERS:
        assert found.select(wanted) == sorted(found.select(wanted), key=list(found).index)
        assert set(found.select(wanted)) == {acl for acl in acls if filtered(wanted, acl)}


def allow(name: str, pattern: PatternType, permission: Permission = Permission.ALLOW) -> Acl:
    return Acl(ResourceType.TOPIC, name, pattern, "User:alice", "*", Operation.WRITE, permission)


LITERAL, PREFIXED, DENY = PatternType.LITERAL, PatternType.PREFIXED, Permission.DENY


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([allow("a", LITERAL)], True),
        ([allow("a", LITERAL), allow("a", LITERAL, DENY)], False),
        ([allow("abc", LITERAL), allow("ab", PREFIXED, DENY)], False),
        ([allow("ab", PREFIXED), allow("abc", PREFIXED, DENY)], True),
        ([allow("ab", PREFIXED), allow("ab", LITERAL, DENY)], True),
        ([allow("*", LITERAL), allow("a", PREFIXED, DENY)], True),
        ([allow("*", LITERAL), allow("*", LITERAL, DENY)], False),
        ([allow("a", LITERAL)._replace(operation=Operation.ALL)], True),
        ([allow("a", LITERAL)._replace(host="10.9.9.9")], False),
        ([allow("a", LITERAL)._replace(principal="User:bob")], False),
        ([allow("a", LITERAL)._replace(resource_type=ResourceType.GROUP)], False),
        ([allow("hardcode", LITERAL)], True),
    ],
)
def test_a_right_on_any_resource_at_all(acls: list[Acl], expected: bool) -> None:
    """InitProducerId without a transactional id asks for it (KIP-679)."""
    authorizer = Authorizer(["User:root"])
    found = AclSet()
    for acl in acls:
        found = found.add(acl)
    authorizer.follow(found)
    assert authorizer.allows_any(CLIENTS[0], rights.WRITE_TOPIC) is expected
    assert authorizer.allows_any(Client(Principal("User", "root"), "10.0.0.1"), rights.WRITE_TOPIC)


def test_operations_of_a_resource() -> None:
    """What a client may do is written as bits, and includes what is implied."""
    authorizer = Authorizer()
    authorizer.follow(NO_ACLS.add(allow("a", PREFIXED)))
    assert authorizer.list_operations(CLIENTS[0], ResourceType.TOPIC, "abc") == 1 << 4 | 1 << 8
    assert authorizer.list_operations(CLIENTS[0], ResourceType.TOPIC, "b") == 0
    assert set(OPERATIONS) == {ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER}


def test_memory_for_decisions_is_limited() -> None:
    authorizer = Authorizer()
    for number in range(DECISIONS_MAX + 10):
        authorizer.allows(CLIENTS[0], rights.READ_TOPIC, str(number))
    assert len(authorizer._decisions) <= DECISIONS_MAX


def test_decisions_about_long_names_are_not_remembered() -> None:
    """Names of groups can have 32 KB: a hundred thousand of them would fill the memory."""
    authorizer = Authorizer()
    authorizer.follow(NO_ACLS.add(allow("x", PREFIXED)))
    for length in (249, 250, 32_767):
        assert authorizer.allows(CLIENTS[0], rights.WRITE_TOPIC, "x" * length)
    assert {len(name) for _, name, *_ in authorizer._decisions} == {249}


def test_hosts_are_spelled_as_java_does() -> None:
    """ACLs that were written for Apache Kafka name IPv6 hosts that way."""
    assert spell_host("10.0.0.1") == ("10.0.0.1", "*")
    assert spell_host("::1")[0] == "0:0:0:0:0:0:0:1"
    assert spell_host("::ffff:10.0.0.1")[0] == "10.0.0.1"
    assert spell_host("fe80::1%eth0")[0] == "fe80:0:0:0:0:0:0:1%eth0"
    assert spell_host("not:an:address") == ("not:an:address", "*")


@pytest.mark.parametrize(
    "acl",
    [
        allow("", LITERAL),
        allow("a", PatternType.ANY),
        allow("a", PatternType.MATCH),
        allow("a", LITERAL)._replace(resource_type=ResourceType.ANY),
        allow("a", LITERAL)._replace(operation=Operation.ANY),
        allow("a", LITERAL)._replace(permission=Permission.ANY),
        allow("a", LITERAL)._replace(principal="alice"),
        allow("a", LITERAL)._replace(resource_type=ResourceType.CLUSTER),
    ],
)
def test_what_cannot_be_an_acl_is_refused_alone(acl: Acl) -> None:
    decision = create_acls(EMPTY, [acl, allow("b", LITERAL)])
    assert isinstance(decision.result[0], KafkaError)
    assert decision.result[1] is None
    assert len(decision.changes) == 1


def test_a_request_can_change_a_limited_number_of_acls() -> None:
    with pytest.raises(KafkaError, match="more than 10000"):
        create_acls(EMPTY, [allow(str(number), LITERAL) for number in range(10_001)])
