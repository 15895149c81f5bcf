"""Real clients read a topic after its compaction: gaps, batches without records, and markers do not hold them up."""

from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from tests.patience import PATIENCE_S
from tests.scenarios.client_calls import connect, create_topic
from tests.scenarios.test_compaction import COMPACTED, clean_end, wait_until

KEYS = 50


def send(broker: LocalBroker, value: bytes, *, commit: bool = True, **settings: Any) -> None:
    """Send 400 records of 50 keys with a new producer, whose last batch the broker then remembers by its sequence."""
    names = {name.replace("_", "."): setting for name, setting in settings.items()}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, **names})
    if "transactional_id" in settings:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for number in range(400):
        producer.produce("table", value + b"." * 60, key=b"k%d" % (number % KEYS), partition=0)
    producer.flush()
    if "transactional_id" in settings:
        producer.commit_transaction(PATIENCE_S) if commit else producer.abort_transaction(PATIENCE_S)


def read(broker: LocalBroker, isolation: str) -> tuple[int, dict[bytes, bytes], int]:
    """Read to the end. Returns the number of records, the last value of each key, and the end offset."""
    settings = {"group.id": "reader", "enable.partition.eof": True, "isolation.level": isolation}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.assign([TopicPartition("table", 0, 0)])
    count = 0
    last: dict[bytes, bytes] = {}
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"stuck after {count} records"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return count, last, consumer.position([TopicPartition("table", 0)])[0].offset
            count += 1
            last[message.key() or b""] = (message.value() or b"").rstrip(b".")
    finally:
        consumer.close()


def test_librdkafka_reads_a_compacted_topic_to_its_end() -> None:
    with local_broker(log_cleaner_backoff_ms=50) as broker:
        with connect(broker) as client:
            assert create_topic(client, "table", configs=COMPACTED).error_code == 0
        send(broker, b"first")
        send(broker, b"second")
        send(broker, b"aborted", transactional_id="one", commit=False)
        send(broker, b"committed", transactional_id="two")
        for _ in range(2):
            send(broker, b"last")  # fills the active segments, so that the others can be compacted
        wait_until(lambda: clean_end(broker, "table") >= 2000, "compaction")
        for isolation in ("read_committed", "read_uncommitted"):
            count, last, end = read(broker, isolation)
            assert end == 2402 and count < 1000
            assert last == {b"k%d" % number: b"last" for number in range(KEYS)}
