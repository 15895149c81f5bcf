"""A client connection: it uses a version that both sides know, and authenticates as RFC 5802 says."""

from random import Random

import pytest

from ottla.client.connection import Connection
from ottla.client.sasl import Login, SaslError, authenticate
from ottla.client.security import Security
from ottla.errors import ErrorCode, KafkaError
from ottla.testing import LocalBroker
from ottla.wire.fetch import FetchRequest
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest


class ScriptedBroker:
    """The other side of a SASL exchange, with scripted answers."""

    def __init__(self, answers: list[bytes]) -> None:
        self.said: list[bytes] = []
        self._answers = answers

    def __call__(self, token: bytes) -> bytes:
        self.said.append(token)
        return self._answers.pop(0)


# The example of RFC 7677: user "user", password "pencil".
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
USER = Login("SCRAM-SHA-256", "user", "pencil")


def test_scram_gives_the_proof_of_the_standards_example() -> None:
    broker = ScriptedBroker([SERVER_FIRST, SERVER_FINAL])
    authenticate(USER, NONCE, broker)
    first, final = broker.said
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")


@pytest.mark.parametrize(
    "answers",
    [
        [SERVER_FIRST, b"v=" + b"A" * 43 + b"="],
        [SERVER_FIRST.replace(b"r=rOpr", b"r=xxxx")],
        [SERVER_FIRST.replace(b"4096", b"99999999")],
        [b"nonsense"],
    ],
    ids=["wrong proof", "another nonce", "endless work", "no scram"],
)
def test_a_broker_that_breaks_the_protocol_is_not_trusted(answers: list[bytes]) -> None:
    with pytest.raises(SaslError):
        authenticate(USER, NONCE, ScriptedBroker(answers))


def test_a_real_broker_is_asked_in_a_version_that_both_know(ottla_broker: LocalBroker) -> None:
    host, port = ottla_broker.bootstrap.split(":")
    with Connection(host, int(port), Security(), Random(1)) as connection:
        assert connection.knows(DescribeClusterRequest)
        assert len(connection.ask(DescribeClusterRequest()).brokers) == 1
        assert not connection.knows(ShareGroupDescribeRequest)
        with pytest.raises(KafkaError) as refused:
            connection.ask(ShareGroupDescribeRequest())
        assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_settings_that_cannot_be_used_are_named() -> None:
    assert Security.of({}).context is None
    assert Security.of({"security.protocol": "SSL"}).context is not None
    for wrong in (
        {"security.protocol": "carrier pigeon"},
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"},
        {"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"},
    ):
        with pytest.raises(ValueError, match=r"security\.protocol|sasl\.oauthbearer|ssl\.ca\.location"):
            Security.of(wrong)


def test_several_requests_may_be_in_flight(ottla_broker: LocalBroker) -> None:
    # Each caller gets its own answer, in whatever order callers ask. An answer that nobody wants disturbs no other.
    host, port = ottla_broker.bootstrap.split(":")
    with Connection(host, int(port), Security(), Random(1)) as connection:
        first = connection.send(MetadataRequest(topics=[MetadataRequestTopic(name="one")]))
        unwanted = connection.send(MetadataRequest(topics=[MetadataRequestTopic(name="two")]))
        last = connection.send(FetchRequest(session_epoch=-1))
        connection.abandon(unwanted)
        assert connection.receive(last).error_code == 0
        assert [topic.name for topic in connection.receive(first).topics] == ["one"]
        late = connection.send(DescribeClusterRequest())
        connection.receive(connection.send(DescribeClusterRequest()))
        connection.abandon(late)  # its answer has arrived already
        assert connection.ask(DescribeClusterRequest()).error_code == 0
        assert not connection._early  # no answer is kept that nobody will ask for


def test_a_version_can_be_capped(ottla_broker: LocalBroker) -> None:
    host, port = ottla_broker.bootstrap.split(":")
    with Connection(host, int(port), Security(), Random(1)) as connection:
        assert connection.send(MetadataRequest(), version_max=5).version == 5
        with pytest.raises(KafkaError, match="has no version of Fetch that this client can use"):
            connection.send(FetchRequest(), version_max=3)
