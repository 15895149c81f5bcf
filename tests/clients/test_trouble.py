"""Client libraries with a broker that misbehaves: lost answers, dropped connections, errors that call for a retry."""

from collections.abc import Sequence
from random import Random

import pytest
from confluent_kafka import TopicPartition

from ottla.testing import LocalBroker
from tests.clients import aio, confluent, kafka_python, logins
from tests.clients.messages import Client, Delivery, Sent
from tests.clients.sender import Sender, read_numbers

CLIENTS: dict[str, Client] = {"confluent": confluent, "aiokafka": aio, "kafka-python": kafka_python}
ALL = pytest.mark.parametrize("client", CLIENTS)


def numbered(count: int) -> list[Sent]:
    return [Sent(0, b"%d" % number, b"value", (), 1000 + number) for number in range(count)]


def check_exactly_once(client: str, broker: LocalBroker, sent: Sequence[Sent]) -> None:
    CLIENTS[client].send(broker.bootstrap, "orders", sent, Delivery(idempotent=True))
    found = confluent.receive(broker.bootstrap, "orders", 1, len(sent))
    assert found == sent
    with confluent.open_consumer(broker.bootstrap) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition("orders", 0), 10) == (0, len(sent))


@ALL
@pytest.mark.parametrize("error", ("NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"))
def test_an_idempotent_producer_retries_what_was_refused(client: str, error: str) -> None:
    # The broker answers twice with a retriable error. Each record is there once, in order.
    with logins.run_broker() as broker:
        broker.create_topic("orders")
        broker.fail("Produce", error, times=2)
        check_exactly_once(client, broker, numbered(50))


@ALL
def test_a_dropped_connection_costs_no_record(client: str) -> None:
    # The connection is dropped twice, before the request is handled.
    with logins.run_broker() as broker:
        broker.create_topic("orders")
        broker.drop("Produce", times=2)
        check_exactly_once(client, broker, numbered(50))


@ALL
def test_a_lost_answer_duplicates_no_record(client: str) -> None:
    # The batch was written and its acknowledgement was lost: the broker recognises the retry by its sequence number.
    with logins.run_broker() as broker:
        broker.create_topic("orders")
        broker.drop("Produce", times=2, answer_only=True)
        check_exactly_once(client, broker, numbered(50))


def test_connections_that_are_lost_all_the_time_cost_no_record(seed: int) -> None:
    # Every few requests an answer is lost or a connection is dropped, with five requests in flight. Each record is
    # there once, in order, at the acknowledged offset.
    random = Random(seed)
    with logins.run_broker() as broker:
        broker.create_topic("orders")
        sender = Sender(broker.bootstrap, "orders", idempotent=True)
        for _ in range(12):
            broker.drop("Produce", times=random.randrange(1, 3), answer_only=random.random() < 0.5)
            sender.work(random.randrange(50, 200))
        broker.clear_faults()
        sender.finish()
        assert read_numbers(broker.bootstrap, "orders") == sorted(sender.acknowledged.items())
        assert [number for number, _ in read_numbers(broker.bootstrap, "orders")] == list(range(sender.sent))
