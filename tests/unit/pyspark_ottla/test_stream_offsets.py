"""The offsets of micro-batches: the tests call the stream reader as Spark does, without Spark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.client.connection import Unreachable
from ottla.errors import KafkaError
from ottla.testing import LocalBroker
from pyspark_ottla import DefaultSource
from pyspark_ottla.losses import DataLossError
from pyspark_ottla.stream_reader import OttlaStreamReader
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.spark.topics import committed, send

Offsets = dict[str, dict[str, int]]


@contextmanager
def reading(broker: LocalBroker, **options: Any) -> Iterator[OttlaStreamReader]:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest", **options}
    source = DefaultSource({name: str(value) for name, value in given.items()})
    reader = source.streamReader(source.schema())
    try:
        yield reader
    finally:
        reader.stop()


def values(reader: OttlaStreamReader, start: Offsets, end: Offsets) -> list[str]:
    return [
        row["value"].decode()
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def latest(reader: OttlaStreamReader, start: Offsets) -> Offsets:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def ask_until(found: Callable[[], Offsets], wanted: Offsets) -> None:
    """Ask until the answer is the wanted one."""
    started_s = monotonic()
    while (answer := found()) != wanted:
        assert monotonic() - started_s < PATIENCE_S, f"{answer} and never {wanted}"


def trim(broker: LocalBroker, topic: str, before: int) -> None:
    """Delete the records before an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    where = TopicPartition(topic, 0, before)
    admin.delete_records([where])[where].result(PATIENCE_S)


def test_a_batch_waits_until_it_is_large_enough_or_old_enough(ottla_session_broker: LocalBroker) -> None:
    """The first batch does not wait, the next waits at most maxTriggerDelay, and a full one does not wait."""
    broker = ottla_session_broker
    broker.create_topic("trickle")
    send(broker, "trickle", [{"value": "0"}])
    with reading(broker, subscribe="trickle", minOffsetsPerTrigger=3, maxTriggerDelay="1h") as reader:
        start = reader.initialOffset()
        first = latest(reader, start)
        assert first == {"trickle": {"0": 1}}
        send(broker, "trickle", [{"value": "1"}])
        assert latest(reader, first) == first
        assert reader.reportLatestOffset() == {"trickle": {"0": 2}}
        second = {"trickle": {"0": 2}}
        assert reader._delay is not None and reader._delay.limit_s == 3600
        reader._delay = reader._client.start_backoff(0)  # as if the hour had passed
        assert latest(reader, first) == second
        send(broker, "trickle", [{"value": value} for value in "234"])
        assert latest(reader, second) == {"trickle": {"0": 5}}
    with reading(broker, subscribe="trickle", minOffsetsPerTrigger=30, maxTriggerDelay="1h") as reader:
        assert latest(reader, start) == {"trickle": {"0": 5}}
        assert latest(reader, second) == second
        assert reader.latestOffset(second, ReadAllAvailable()) == {"trickle": {"0": 5}}


def test_batches_respect_both_limits(ottla_session_broker: LocalBroker) -> None:
    """maxOffsetsPerTrigger cuts what minOffsetsPerTrigger lets through."""
    broker = ottla_session_broker
    broker.create_topic("both")
    send(broker, "both", [{"value": f"{number}"} for number in range(10)])
    options = {"minOffsetsPerTrigger": 2, "maxOffsetsPerTrigger": 4, "maxTriggerDelay": "1h"}
    with reading(broker, subscribe="both", **options) as reader:
        ends = [reader.initialOffset()]
        for _ in range(4):
            ends.append(latest(reader, ends[-1]))
        assert [end["both"]["0"] for end in ends] == [0, 4, 8, 10, 10]


def test_new_partitions_and_topics_are_read_from_their_beginning(ottla_session_broker: LocalBroker) -> None:
    broker = ottla_session_broker
    broker.create_topic("grow-a")
    send(broker, "grow-a", [{"value": "old"}])
    with reading(broker, subscribePattern="grow-.*") as reader:
        start = reader.initialOffset()
        first = latest(reader, start)
        assert values(reader, start, first) == ["old"]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions("grow-a", 2)])["grow-a"].result(PATIENCE_S)
        broker.create_topic("grow-b")
        send(broker, "grow-a", [{"value": "new partition", "partition": 1}])
        send(broker, "grow-b", [{"value": "new topic"}])
        second = {"grow-a": {"0": 1, "1": 1}, "grow-b": {"0": 1}}
        ask_until(lambda: latest(reader, first), second)
        assert values(reader, first, second) == ["new partition", "new topic"]


def test_deleted_records_are_reported_or_skipped(ottla_session_broker: LocalBroker) -> None:
    """Offsets are gone when a batch is read: the error has the numbers, or the rest is read, also of a batch that is
    cut in two."""
    broker = ottla_session_broker
    broker.create_topic("aged")
    send(broker, "aged", [{"value": f"{number}"} for number in range(10)])
    trim(broker, "aged", 6)
    start, end = {"aged": {"0": 3}}, {"aged": {"0": 10}}
    said = r"aged-0: records from offset 3 on are missing \(it has 6 to 10\)"
    with reading(broker, subscribe="aged") as reader, pytest.raises(DataLossError, match=said):
        values(reader, start, end)
    with reading(broker, subscribe="aged", failOnDataLoss="false") as reader:
        assert values(reader, start, end) == ["6", "7", "8", "9"]
        assert values(reader, start, {"aged": {"0": 5}}) == []


def test_a_stream_of_missing_topics(ottla_session_broker: LocalBroker) -> None:
    broker = ottla_session_broker
    broker.create_topic("there")
    for options, said in (
        ({"subscribe": "there,absent"}, "there is no topic 'absent'"),
        ({"assign": '{"there": [1]}'}, "'there' has only 1 partitions, and no 1"),
    ):
        with reading(broker, **options) as reader, pytest.raises(KafkaError, match=said):
            reader.initialOffset()
    with reading(broker, subscribePattern="nothing-is-called-so") as reader:
        assert reader.initialOffset() == {}
        assert latest(reader, {}) == {}


def test_a_stopped_broker(ottla_broker: LocalBroker) -> None:
    """A broker that comes back in time is not noticed. Otherwise the error is one line with its address."""
    broker = ottla_broker
    broker.create_topic("patient")
    send(broker, "patient", [{"value": "before"}])
    with reading(broker, subscribe="patient", **{"kafka.default.api.timeout.ms": PATIENCE_MS}) as reader:
        start = reader.initialOffset()
        broker.restart()
        end = latest(reader, start)
        broker.restart()
        assert values(reader, start, end) == ["before"]
    broker.stop()
    with reading(broker, subscribe="patient", **{"kafka.default.api.timeout.ms": 200}) as reader:
        with pytest.raises(Unreachable, match=f"{broker.port}") as error:
            reader.initialOffset()
        assert "\n" not in str(error.value)


def test_the_group_gets_the_offsets_of_a_batch_when_the_next_one_is_planned(ottla_broker: LocalBroker) -> None:
    """Also if there is none. Where a new query begins is not committed, because nothing was read; an interrupted query
    commits again what it has reached."""
    ottla_broker.create_topic("grouped")
    send(ottla_broker, "grouped", [{"value": "a"}, {"value": "b"}])
    options = {"subscribe": "grouped", "kafka.group.id": "exact"}
    with reading(ottla_broker, **options) as reader:
        start = reader.initialOffset()
        end = latest(reader, start)
        assert committed(ottla_broker, "exact", "grouped", 1) == [-1001]
        assert latest(reader, end) == end
        assert committed(ottla_broker, "exact", "grouped", 1) == [2]
    send(ottla_broker, "grouped", [{"value": "c"}])
    with reading(ottla_broker, **options) as again:
        latest(again, {"grouped": {"0": 3}})
        assert committed(ottla_broker, "exact", "grouped", 1) == [3]
