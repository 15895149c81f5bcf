"""kill -9 at any moment, with producers at work: no acknowledged record is lost, duplicated or reordered.

OTTLA_KILLS=200 how often a broker dies in each test; `make broker-chaos` sets it
"""

import os
from contextlib import suppress
from pathlib import Path
from random import Random
from subprocess import TimeoutExpired

import pytest
from confluent_kafka import Message, TopicPartition

from tests.clients.child import HOST, OttlaUp, ottla_up
from tests.clients.confluent import open_consumer, take_messages
from tests.clients.sender import Sender, read_numbers
from tests.raw_client import RawClient
from tests.samples import sample_size
from tests.scenarios.client_calls import create_topic

KILLS = int(os.environ.get("OTTLA_KILLS", sample_size(2, 10)))


def create_topics(broker: OttlaUp, *topics: str) -> None:
    with RawClient(HOST, broker.port) as client:
        for topic in topics:
            assert create_topic(client, topic).error_code == 0


def die_and_return(broker: OttlaUp, random: Random) -> None:
    """Kill the broker and start it again; sometimes kill it once more during its recovery."""
    broker.kill()
    while random.random() < 0.3:
        with suppress(TimeoutExpired):
            broker.spawn().wait(random.uniform(0.05, 0.6))
        broker.kill()
    broker.start()


@pytest.mark.always
@pytest.mark.parametrize("flush", ("page cache", "every record"))
def test_kill_9_keeps_every_acknowledged_record(flush: str, tmp_path: Path, seed: int) -> None:
    # With an idempotent producer each record is there exactly once, in order, at the acknowledged offset. With a plain
    # producer and one request in flight each record is there at least once, and the first copies are in order. A
    # consumer that reads all the time sees every offset once. The same holds with acknowledgements that wait for fsync,
    # over many small segments.
    random = Random(seed)
    interval = 1 if flush == "every record" else 10_000_000
    settings = (f"log.flush.interval.messages={interval}", "log.segment.bytes=1048576")
    with ottla_up(tmp_path / "data", *settings) as broker, open_consumer(broker.bootstrap) as reader:
        create_topics(broker, "once", "at-least-once")
        reader.assign([TopicPartition("once", 0, 0)])
        seen: list[Message] = []
        once = Sender(broker.bootstrap, "once", idempotent=True)
        at_least_once = Sender(broker.bootstrap, "at-least-once", idempotent=False)
        for _ in range(KILLS):
            at_least_once.send(200)
            once.work(random.randrange(600))
            seen += [message for message in reader.consume(500, 0.05) if message.error() is None]
            die_and_return(broker, random)
        once.finish()
        at_least_once.finish()
        assert read_numbers(broker.bootstrap, "once") == sorted(once.acknowledged.items())
        assert [number for number, _ in read_numbers(broker.bootstrap, "once")] == list(range(once.sent))
        seen += take_messages(reader, once.sent - len(seen))
        assert [message.offset() for message in seen] == list(range(once.sent))
        found = read_numbers(broker.bootstrap, "at-least-once")
        assert list(dict.fromkeys(number for number, _ in found)) == list(range(at_least_once.sent))
        assert set(at_least_once.acknowledged.items()) <= set(found)
