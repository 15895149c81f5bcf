"""librdkafka above its quota: bytes are counted, and it takes at least as long as the quota asks for.

Nothing fails because it takes longer. With two windows of a second, one second's worth is free.
"""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, ThrottleEvent, TopicPartition

from ottla import testing
from ottla.testing import LocalBroker
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.quota_requests import set_quota

RATE, MESSAGES, VALUE_BYTES = 400_000, 20, 80_000
TOTAL = MESSAGES * VALUE_BYTES
SECONDS_MIN = TOTAL / RATE - 1 - 0.2  # a fifth of a second: one request, of which nobody waits for the end


@pytest.fixture(scope="module")
def limited() -> Iterator[LocalBroker]:
    with testing.broker(quota_window_num=2) as broker:
        broker.create_topic("orders")
        yield broker


def test_a_producer_and_a_consumer_keep_to_their_quotas(limited: LocalBroker) -> None:
    """The producer has a quota by client id, the consumer by user. Both hear of it (throttle_cb)."""
    events: list[ThrottleEvent] = []
    common = {"bootstrap.servers": limited.bootstrap, "throttle_cb": events.append}
    with RawClient(limited.host, limited.port) as admin:
        set_quota(admin, {"client-id": "noisy"}, producer_byte_rate=RATE)
        producer = Producer({**common, "client.id": "noisy", "batch.size": VALUE_BYTES, "linger.ms": 0})
        began = time.monotonic()
        for number in range(MESSAGES):
            producer.produce("orders", bytes([number]) * VALUE_BYTES, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        assert time.monotonic() - began >= SECONDS_MIN
        producer.poll(0)
        assert max(event.throttle_time for event in events) > 0
        events.clear()
        set_quota(admin, {"user": "ANONYMOUS"}, consumer_byte_rate=RATE)
        consumer = Consumer(
            {**common, "group.id": "any", "enable.auto.commit": False, "max.partition.fetch.bytes": 200_000}
        )
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
        began, received = time.monotonic(), 0
        while received < TOTAL:
            message = consumer.poll(PATIENCE_S)
            assert message is not None and message.error() is None
            received += len(message.value() or b"")
        assert time.monotonic() - began >= SECONDS_MIN
        consumer.close()
        assert max(event.throttle_time for event in events) > 0
