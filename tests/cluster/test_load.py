"""The clients that other tests put under trouble: a reader whose client has died goes on with another one."""

import time
from logging import makeLogRecord

import pytest
from confluent_kafka import Consumer, Producer

import ottla.testing
from ottla.topic_partition import TopicPartition
from tests.cluster.load import SILENT_POLLS, SILENT_S, ClientLog, Reader, wait_for
from tests.simulation.history import Assigned, Event, Polled

TOPIC = TopicPartition("orders", 0)


class MortalLog(ClientLog):
    """The log of a client that is dead when the test says so."""

    dead = False

    def is_dead(self) -> bool:
        is_dead, self.dead = self.dead, False
        return is_dead


class MortalReader(Reader):
    def abandon(self, consumer: Consumer) -> None:
        consumer.close()


def test_a_dead_client_is_replaced_where_it_stood() -> None:
    # Nothing is read twice, and nothing is left out.
    events: list[Event] = []

    def live(life: int) -> None:
        for number in range(10):
            producer.produce(TOPIC.topic, str(number))
        producer.flush()
        wait_for(lambda: reader.positions[TOPIC] == 10 * life, "the records are read", str)
        log.dead = True
        wait_for(lambda: reader.replaced == life, "the client is replaced", str)

    with ottla.testing.broker() as broker:
        broker.create_topic(TOPIC.topic)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        reader = MortalReader("reader", broker.bootstrap, [TOPIC], events)
        log = reader.client_log = MortalLog("metadata,topic")
        reader.start()
        live(1)
        live(2)
        reader.stop()
        reader.join()
    assert not reader.failures
    read = [offset for event in events if isinstance(event, Polled) for offset, _ in event.records]
    assert read == list(range(20))
    assert [event.position for event in events if isinstance(event, Assigned)] in ([0, 10], [0, 10, 20])


def test_only_a_client_whose_main_thread_is_silent_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def poll(times: int) -> bool:
        for _ in range(times):
            log.note_poll()
        return log.is_dead()

    def tell(line: str) -> None:
        log.emit(makeLogRecord({"msg": line}))

    log = ClientLog("metadata")
    now += SILENT_S + 1
    assert not poll(SILENT_POLLS), "the machine may have stood still"
    assert poll(1)
    tell("FETCHADD [rdkafka#consumer-1] [thrd:127.0.0.1:9092/1]: Added orders [0] to fetch list")
    assert log.is_dead()
    tell("METADATA [rdkafka#consumer-1] [thrd:main]: Requesting metadata for 1/1 topics")
    assert not poll(SILENT_POLLS + 1), "it was heard just now"
