"""The encoding of metadata changes: canonical, complete, and refused when not understood."""

import json
import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster import changes as change
from ottla.cluster import encoding
from ottla.cluster.changes import Change, ConfigResource, Endpoint, QuotaName, SupportedFeature, TopicReplicas
from ottla.cluster.encoding import MalformedEntry, decode, encode
from ottla.cluster.identity_changes import (
    PrincipalName,
    RemoveDelegationToken,
    RemoveScramCredential,
    SetDecoySecret,
    SetDelegationToken,
    SetScramCredential,
)
from ottla.errors import KafkaError
from ottla.security.acls import Acl
from ottla.security.operations import Operation, PatternType, Permission, ResourceType
from tests.unit.cluster.histories import History, histories

ID = bytes(range(16))
ACL = Acl(ResourceType.TOPIC, "ördrs", PatternType.PREFIXED, "User:alice", "*", Operation.READ, Permission.DENY)

ALICE = PrincipalName("User", "älice")

EXAMPLES: list[Change] = [
    change.SetClusterId("abc"),
    SetScramCredential("älice", 1, b"salt", b"stored", b"server", 4096),
    RemoveScramCredential("älice", 2),
    SetDecoySecret(ID),
    SetDelegationToken("id", ALICE, ALICE, (ALICE, PrincipalName("User", "bob")), 1, 2, 3),
    RemoveDelegationToken("id"),
    change.RegisterBroker(1, (ID, ID[::-1]), (Endpoint("PLAINTEXT", "höst", 9092, "PLAINTEXT"),), "rack", True, 7),
    change.RegisterBroker(1, (), (), features=(SupportedFeature("a", 0, 2),), incarnation=ID),
    change.FenceBroker(1, 2),
    change.UnfenceBroker(1, 2),
    change.BeginShutdown(1, 2),
    change.TakeReplicasOffline(1, 2, (TopicReplicas(ID, (0, 5)), TopicReplicas(ID[::-1], ())), True),
    change.UnregisterBroker(1),
    change.BecomeController(1, 2),
    change.CreateTopic(ID, "orders"),
    change.CreatePartition(ID, 0, (1, 2), (1,), 1, 3, 4, True, (2,), -1, (2,), (1,), (2,)),
    change.ChangePartition(ID, 0, 5, isr=(2,), leader=-1),
    change.ChangePartition(ID, 0, 5, replicas=(2, 3), adding=(3,), removing=(), recovering=False),
    change.DeleteTopic(ID),
    change.SetConfig(ConfigResource.TOPIC, "orders", "retention.ms", None),
    change.SetConfig(ConfigResource.BROKER, "", "x", ""),
    change.SetQuota((QuotaName("client-id", None), QuotaName("user", "alice")), "request_percentage", 12.5),
    change.SetQuota((QuotaName("ip", "::1"),), "connection_creation_rate", None),
    change.ReserveProducerIds(1, 2, 1000, 1000),
    change.SetFeature("group.version", 1),
    change.AddAcl(ACL),
    change.RemoveAcl(ACL),
    change.SetElectionRules(0),
    change.RememberUnregistered(1003),
    change.VerifyDigest(ID),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_every_kind_survives_the_encoding(example: Change) -> None:
    """Decoded, a change is equal, of the same type, with the same field types."""
    (decoded,) = decode(encode([example]))
    assert decoded == example
    assert repr(decoded) == repr(example)


def test_the_bytes_are_canonical() -> None:
    """Sorted keys, no blanks, base64url without padding, defaults left out."""
    assert encode([change.CreateTopic(b"\xff" * 16, "a"), change.ChangePartition(ID, 1, 2, isr=(3,))]) == (
        b'[{"kind":"CreateTopic","name":"a","topic_id":"_____________________w"},'
        b'{"isr":[3],"kind":"ChangePartition","partition":1,"partition_epoch":2,"topic_id":"AAECAwQFBgcICQoLDA0ODw"}]'
    )


def test_a_large_entry_is_compressed() -> None:
    """Its objects repeat the same names and ids. A small one stays readable."""
    changes = [change.CreatePartition(ID, number, (1, 2, 3), (1, 2, 3), 1) for number in range(10_000)]
    data = encode(changes)
    assert len(data) < 100_000
    assert decode(data) == tuple(changes)
    assert encode(changes[:2]).startswith(b"[")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x01", "compressed changes that end too early"),
        (b"\x01[]", "not compressed changes"),
        (b"\x01" + zlib.compress(b"[]")[:-1], "compressed changes that end too early"),
        (b"\x01" + zlib.compress(b"[]") + b"x", "compressed changes that end too early"),
        (b"\x01" + zlib.compress(bytes(encoding.PLAIN_BYTES_MAX + 1)), "larger than 16777216 bytes"),
        (b"\x01" + zlib.compress(b"{}"), "not an array of changes"),
        (b"\x02[]", "not JSON"),
    ],
)
def test_compressed_bytes_that_are_no_entry(data: bytes, message: str) -> None:
    """Also those that would unpack to more than any entry holds."""
    with pytest.raises(MalformedEntry, match=message):
        decode(data)


def test_an_entry_has_its_limit_before_compression() -> None:
    """Or a reader would refuse it."""
    changes = [change.SetConfig(ConfigResource.GROUP, "g", "k", "x" * encoding.PLAIN_BYTES_MAX)]
    with pytest.raises(KafkaError, match="too large"):
        encode(changes)


@pytest.mark.parametrize(("limit", "bytes_max"), [("ENTRY_BYTES_MAX", 20_000), ("PLAIN_BYTES_MAX", 100_000)])
def test_as_many_changes_as_fit_an_entry_are_counted(
    limit: str, bytes_max: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fill it well, with changes of very different sizes too, and all of a few changes fit."""
    random = Random(seed)
    sizes = [random.choice((1, 3, 30)) for _ in range(3000)]
    changes = [
        change.ChangePartition(ID, number, 1, replicas=tuple(random.sample(range(1000), size)))
        for number, size in enumerate(sorted(sizes, reverse=True))
    ]
    assert encoding.count_fitting(changes) == 3000
    monkeypatch.setattr(encoding, "ENTRY_BYTES_MAX", 40_000)
    monkeypatch.setattr(encoding, limit, bytes_max)
    count = encoding.count_fitting(changes)
    size = len(encode(changes[:count]) if limit == "ENTRY_BYTES_MAX" else encoding.encode_plain(changes[:count]))
    assert bytes_max * 0.7 < size <= bytes_max
    assert encoding.count_fitting(changes[:50]) == 50


def test_every_kind_has_an_example() -> None:
    """A new kind of change cannot be forgotten here."""
    assert {type(example).__name__ for example in EXAMPLES} == set(encoding._KINDS)


@given(histories())
@settings(max_examples=50, deadline=None)
def test_histories_survive_the_encoding(history: History) -> None:
    """Decoding gives the same changes, and encoding them again the same bytes."""
    for changes in history:
        data = encode(changes)
        assert decode(data) == changes
        assert encode(decode(data)) == data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{}", "not an array of changes"),
        ("[1]", "not a change: 1"),
        ('[{"name":"a"}]', "unknown kind of change None"),
        ('[{"kind":["a"]}]', "unknown kind of change"),
        ('[{"kind":"RenameTopic"}]', "unknown kind of change 'RenameTopic'; written by a newer version?"),
        ('[{"kind":"SetFeature","name":"a","level":1,"why":2}]', "SetFeature has an unknown field 'why'"),
        ('[{"kind":"SetFeature","name":"a"}]', "SetFeature lacks level"),
        ('[{"kind":"SetFeature","name":"a","level":true}]', "SetFeature.level cannot be True"),
        ('[{"kind":"SetFeature","name":"a","level":1.0}]', "SetFeature.level cannot be 1.0"),
        ('[{"kind":"DeleteTopic","topic_id":"A*"}]', "DeleteTopic.topic_id cannot be 'A[*]'"),
        ('[{"kind":"DeleteTopic","topic_id":"AB"}]', "DeleteTopic.topic_id cannot be 'AB'"),
        (
            '[{"kind":"SetConfig","resource_type":3,"resource_name":"a","key":"b","value":"c"}]',
            "SetConfig.resource_type cannot be 3",
        ),
        ('[{"kind":"RegisterBroker","broker_id":1,"directories":["AA"],"endpoints":[["a"]]}]', "endpoints cannot be"),
        ('[{"kind":"RegisterBroker","broker_id":1,"directory_id":7,"endpoints":[]}]', "directories cannot be"),
        (
            '[{"kind":"TakeReplicasOffline","broker_id":1,"broker_epoch":1,"replicas":[["AA",[true]]]}]',
            "replicas cannot",
        ),
    ],
)
def test_what_is_not_understood_is_refused(text: str, message: str) -> None:
    """Unknown kinds and fields, wrong types and second spellings all raise, in one line; nothing is dropped."""
    with pytest.raises(MalformedEntry, match=message.replace("?", r"\?")):
        decode(text.encode())


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["kind", "name", "level", "topic_id"]) | st.text(), inner)
        ),
    )
)
def test_any_json_is_read_or_refused(value: object) -> None:
    """Bytes from outside raise nothing but MalformedEntry."""
    for items in (value, [value], [{"kind": "SetFeature", "name": value, "level": value}]):
        try:
            decode(json.dumps(items).encode())
        except MalformedEntry:
            continue
