"""Whatever one client library sends, every client library receives, byte for byte and in order."""

from random import Random

import pytest

from ottla.testing import LocalBroker
from tests.clients import aio, confluent, kafka_python
from tests.clients.messages import CODECS, Client, Delivery, Sent, group_by_partition, messages

PARTITIONS = 3

CLIENTS: dict[str, Client] = {"confluent": confluent, "aiokafka": aio, "kafka-python": kafka_python}
ALL = pytest.mark.parametrize("client", CLIENTS)


def sendable(client: str, seed: int, count: int, partitions: int, largest: int = 2000) -> list[Sent]:
    null_headers = CLIENTS[client].NULL_HEADERS
    return messages(Random(seed), count, partitions, largest=largest, null_headers=null_headers)


@ALL
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_reaches_every_client(client: str, codec: str, broker: LocalBroker, topic: str, seed: int) -> None:
    # Keys, values, headers and times are unchanged, in the order they were sent to each partition.
    broker.create_topic(topic, PARTITIONS)
    sent = sendable(client, seed, 300, PARTITIONS)
    CLIENTS[client].send(broker.bootstrap, topic, sent, Delivery(codec, idempotent=True))
    for receiver in CLIENTS.values():
        received = receiver.receive(broker.bootstrap, topic, PARTITIONS, len(sent))
        assert group_by_partition(received) == group_by_partition(sent)


@ALL
@pytest.mark.parametrize("acks", (-1, 1, 0))
def test_every_kind_of_acknowledgement(client: str, acks: int, broker: LocalBroker, topic: str, seed: int) -> None:
    # The producer is not idempotent. With acks=0 it gets no answer, and the records are stored all the same.
    broker.create_topic(topic)
    sent = sendable(client, seed, 100, 1)
    CLIENTS[client].send(broker.bootstrap, topic, sent, Delivery(acks=acks))
    assert CLIENTS[client].receive(broker.bootstrap, topic, 1, len(sent)) == sent


@ALL
@pytest.mark.parametrize("codec", ("none", "zstd"))
def test_large_messages(client: str, codec: str, broker: LocalBroker, topic: str, seed: int) -> None:
    # One record of ten megabytes, more than a consumer asks for by default, is between small ones.
    broker.create_topic(topic)
    small = sendable(client, seed, 2, 1)
    large = small[0]._replace(value=Random(seed).randbytes(5_000_000) * 2)
    sent = [small[0], large, small[1]]
    CLIENTS[client].send(broker.bootstrap, topic, sent, Delivery(codec))
    assert CLIENTS[client].receive(broker.bootstrap, topic, 1, 3) == sent


@ALL
def test_many_partitions(client: str, broker: LocalBroker, topic: str, seed: int) -> None:
    # One client reads 100 partitions at once, with sessions and long polls over all of them.
    broker.create_topic(topic, 100)
    sent = sendable(client, seed, 500, 100, largest=100)
    CLIENTS[client].send(broker.bootstrap, topic, sent, Delivery(idempotent=True))
    assert group_by_partition(CLIENTS[client].receive(broker.bootstrap, topic, 100, 500)) == group_by_partition(sent)


@ALL
def test_a_topic_is_created_by_the_first_record(client: str, broker: LocalBroker, topic: str, seed: int) -> None:
    # auto.create.topics.enable is on by default, and the client retries by itself.
    sent = sendable(client, seed, 5, 1)
    CLIENTS[client].send(broker.bootstrap, topic, sent, Delivery())
    assert CLIENTS[client].receive(broker.bootstrap, topic, 1, 5) == sent
