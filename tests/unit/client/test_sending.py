"""Batches sent to a real broker that fails, drops, delays and restarts: everything arrives once, in order."""

from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from ottla.client.client import Client
from ottla.client.connection import Unreachable
from ottla.client.sending import ACKS_NONE, EncodedBatch, Sender
from ottla.client.transactions import ProducerIdentity
from ottla.errors import ErrorCode, KafkaError
from ottla.pipeline.encoding import Encoder
from ottla.records.batch import HEADER_SIZE
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.unit.client.reading_back import values

TOPIC = "events"
QUICK = {"retry.backoff.ms": "5", "retry.backoff.max.ms": "20"}


@pytest.fixture
def client(ottla_broker: LocalBroker) -> Iterator[Client]:
    found = Client({"bootstrap.servers": ottla_broker.bootstrap, "retry.backoff.ms": "5", "retry.backoff.max.ms": "20"})
    yield found
    found.close()


def encode(count: int, partitions: int = 1, *, per_batch: int = 5, codec: int = 0) -> list[EncodedBatch]:
    """Encode records with numbers as values, `per_batch` in a batch, one partition after the other."""
    found = []
    for first in range(0, count, per_batch):
        numbers = [b"%d" % number for number in range(first, min(first + per_batch, count))]
        rows = pa.record_batch({"value": pa.array(numbers, pa.binary())})
        encoder = Encoder(lambda _: 1, Random(1), topic=TOPIC, codec=codec)
        (batch,) = [*encoder.add(rows), *encoder.flush()]
        batch.partition = first // per_batch % partitions
        found.append(batch)
    return found


def numbers(count: int, partitions: int = 1, per_batch: int = 5) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for number in range(count):
        found.setdefault(number // per_batch % partitions, []).append(b"%d" % number)
    return found


def test_many_batches_arrive_in_order(ottla_broker: LocalBroker, client: Client) -> None:
    ottla_broker.create_topic(TOPIC, 3)
    sender = Sender(client, request_bytes_max=400)
    sender.send_all(encode(1000, 3))
    sender.flush()
    assert values(client, TOPIC) == numbers(1000, 3)
    assert sender.next_offsets == {TopicPartition(TOPIC, each): len(numbers(1000, 3)[each]) for each in range(3)}


@pytest.mark.parametrize("answer_only", [False, True])
@pytest.mark.parametrize("trouble", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "drop"])
def test_network_errors_lose_duplicate_and_reorder_nothing(
    ottla_broker: LocalBroker, client: Client, trouble: str, answer_only: bool
) -> None:
    """Requests fail before and after they were handled, while later ones are in flight."""
    ottla_broker.create_topic(TOPIC, 2)
    sender = Sender(client, request_bytes_max=200)
    batches = encode(600, 2)
    for first in range(0, len(batches), 20):
        sender.send_all(batches[first : first + 10])
        if trouble == "drop":
            ottla_broker.drop("Produce", answer_only=answer_only)
        else:
            ottla_broker.fail("Produce", trouble, 2, answer_only=answer_only)
        sender.send_all(batches[first + 10 : first + 20])
    sender.flush()
    assert values(client, TOPIC) == numbers(600, 2)


def test_batches_after_a_failed_one_are_sent_again_after_it(ottla_broker: LocalBroker, client: Client) -> None:
    """Four requests are in flight when the first fails. The broker finds the others out of order, and they are sent
    again."""
    ottla_broker.create_topic(TOPIC)
    sender = Sender(client, request_bytes_max=1)
    batches = encode(25)
    sender.send(batches[0])
    sender.flush()
    ottla_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    sender.send_all(batches[1:])
    sender.flush()
    assert values(client, TOPIC) == numbers(25)


def test_a_broker_that_restarts_is_waited_for(ottla_broker: LocalBroker, client: Client) -> None:
    ottla_broker.create_topic(TOPIC)
    sender = Sender(client, request_bytes_max=100)
    batches = encode(100)
    sender.send_all(batches[:10])
    ottla_broker.kill()
    ottla_broker.restart()
    sender.send_all(batches[10:])
    sender.flush()
    assert values(client, TOPIC) == numbers(100)


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_the_topic_finds_too_large_is_split(ottla_broker: LocalBroker, client: Client, codec: int) -> None:
    ottla_broker.create_topic(TOPIC, max_message_bytes=HEADER_SIZE + 100)
    sender = Sender(client)
    sender.send_all(encode(90, per_batch=30, codec=codec))
    sender.flush()
    assert values(client, TOPIC) == numbers(90)


def test_a_sender_fails_for_good_after_a_fatal_error(ottla_broker: LocalBroker, client: Client) -> None:
    """One record alone is too large for the topic. The error names the partition, and every later call raises it
    again."""
    ottla_broker.create_topic(TOPIC, max_message_bytes=HEADER_SIZE + 1)
    sender = Sender(client)
    sender.send_all(encode(2))
    for _ in range(2):
        with pytest.raises(KafkaError, match="events-0") as refused:
            sender.flush()
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError):
        sender.send_all(encode(1))


def test_errors_that_do_not_end_are_reported(ottla_broker: LocalBroker, client: Client) -> None:
    ottla_broker.create_topic(TOPIC)
    sender = Sender(client, delivery_s=0.2)
    ottla_broker.fail("Produce", "NOT_ENOUGH_REPLICAS", None)
    sender.send_all(encode(1))
    with pytest.raises(KafkaError) as refused:
        sender.flush()
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_stopped_broker_is_reported(ottla_broker: LocalBroker) -> None:
    ottla_broker.create_topic(TOPIC)
    client = Client(
        {"bootstrap.servers": ottla_broker.bootstrap, "default.api.timeout.ms": "200", "retry.backoff.ms": "5"}
    )
    sender = Sender(client, delivery_s=0.2)
    sender.send_all(encode(5))
    sender.flush()
    ottla_broker.stop()
    sender.send_all(encode(5))
    with pytest.raises(Unreachable):
        sender.flush()


@pytest.mark.parametrize("acks", [ACKS_NONE, 1])
def test_fewer_acknowledgements_need_no_producer_id(ottla_broker: LocalBroker, client: Client, acks: int) -> None:
    ottla_broker.create_topic(TOPIC, 2)
    ottla_broker.fail("InitProducerId", "UNKNOWN_SERVER_ERROR", None)
    sender = Sender(client, acks=acks, request_bytes_max=300)
    sender.send_all(encode(100, 2))
    sender.flush()
    # uses the same connection, so its answer shows that all earlier requests were handled
    last = Sender(client, acks=1)
    last.send_all(encode(5))
    last.flush()
    assert values(client, TOPIC)[1] == numbers(100, 2)[1]
    with pytest.raises(ValueError, match="acks=all"):
        Sender(client, ProducerIdentity(1, 1), acks=acks)


def test_memory_is_bounded(ottla_broker: LocalBroker, client: Client) -> None:
    """However much is sent, the sender holds no more than the limit, and waits for answers."""
    ottla_broker.create_topic(TOPIC)
    sender = Sender(client, request_bytes_max=200, buffered_bytes_max=1000)
    for batch in encode(500):
        sender.send(batch)
        assert sender.buffered_bytes <= 1000
    sender.flush()
    assert sender.buffered_bytes == 0
    assert values(client, TOPIC) == numbers(500)
