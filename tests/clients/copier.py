"""A read-process-write program that may be killed at any time: copies a partition in transactions, with librdkafka.

    python -m tests.clients.copier BOOTSTRAP SOURCE TARGET

Each transaction takes a few records, writes them to the target and commits their offset in the source. Some
transactions are aborted on purpose. A restarted copier continues where the last one ended, under the same transactional
id, so a copier that is wrongly believed dead is fenced. It never ends by itself.
"""

import sys
from random import Random

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.clients import logins

PATIENCE_S = 60.0
"""The time-out of one step of a transaction. After it another producer takes over."""
TAKEN = 20
ABORTED = 0.15


def main(bootstrap: str, source: str, target: str) -> None:
    while True:
        run_producer(bootstrap, source, target)


def run_producer(bootstrap: str, source: str, target: str) -> None:
    """Copy with one producer, until an error that needs a new producer."""
    quiet = {
        **logins.librdkafka(bootstrap),
        "log_level": 0,
        "reconnect.backoff.max.ms": 100,
        # librdkafka 2.16 that bootstraps again keeps the group's coordinator in a cache, as a broker that it has given
        # up. It waits for that broker for ever with what it has to send.
        "metadata.recovery.strategy": "none",
    }
    producer = Producer({**quiet, "transactional.id": f"{source}-to-{target}", "transaction.timeout.ms": 60_000})
    consumer = Consumer(
        {
            **quiet,
            "group.id": f"{source}-to-{target}",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        producer.init_transactions(PATIENCE_S)
        copy(producer, consumer, TopicPartition(source, 0), target)
    except KafkaException as error:
        print(f"starts over: {error}", file=sys.stderr, flush=True)
    finally:
        consumer.close()


def copy(producer: Producer, consumer: Consumer, source: TopicPartition, target: str) -> None:
    random = Random()
    rewind(consumer, source)
    while True:
        messages = [message for message in consumer.consume(TAKEN, 0.2) if message.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(target, message.value(), partition=0)
            producer.send_offsets_to_transaction(
                consumer.position([source]), consumer.consumer_group_metadata(), PATIENCE_S
            )
            if random.random() < ABORTED:
                producer.abort_transaction(PATIENCE_S)
                rewind(consumer, source)
            else:
                producer.commit_transaction(PATIENCE_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(PATIENCE_S)
            rewind(consumer, source)


def rewind(consumer: Consumer, source: TopicPartition) -> None:
    """Seek to the last committed offset."""
    (committed,) = consumer.committed([source], PATIENCE_S)
    consumer.assign([TopicPartition(source.topic, source.partition, max(committed.offset, 0))])


if __name__ == "__main__":
    main(*sys.argv[1:])
