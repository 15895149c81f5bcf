"""Reads the records of topics: in each partition up to its end when the command started, or without end."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Protocol

from ottla.cli.client import OPERATION_S, CommandClient, explain, is_about_unused_group, to_command_error
from ottla.cli.command_error import CommandError
from ottla.cli.offset_ranges import READ_COMMITTED, OffsetRange
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

GLANCE_S = 0.2
RECORDS_MAX = 2_000

SETTINGS = {
    "enable.partition.eof": True,  # the last offsets may be no records: compacted away, or transaction markers
    "auto.offset.reset": "earliest",  # retention may delete records before a slow reader gets to them
    "fetch.wait.max.ms": 100,
    "queued.min.messages": 1_000_000,  # these two let small records be read as fast as large ones
    "fetch.queue.backoff.ms": 10,
    "max.poll.interval.ms": 86_400_000,  # a pager such as less may block the output for long
}


class Reader(Protocol):
    """Where `ottla consume` gets records from: partitions that it has chosen, or those that a group assigns to it."""

    @property
    def caught_up(self) -> bool:
        """Whether every partition was read up to its end."""

    def read(self) -> "list[Message]":
        """Records that have arrived, in order within each partition; none if nothing arrives within GLANCE_S."""

    def mark_done(self, messages: "Sequence[Message]") -> None:
        """These records were printed, or left out by a filter."""

    def close(self) -> None: ...


def locate(message: "Message") -> tuple[int, int]:
    """Partition and offset of a fetched record, which are never None."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def find_place(message: "Message") -> TopicPartition:
    return TopicPartition(message.topic() or "", locate(message)[0])


class TopicReader:
    """Reads partitions without joining a group."""

    def __init__(
        self,
        client: CommandClient,
        ranges: Mapping[TopicPartition, OffsetRange],
        *,
        follow: bool,
        isolation: str = READ_COMMITTED,
    ) -> None:
        from confluent_kafka import TopicPartition as Place

        self._client = client
        self._ranges = ranges
        self._follow = follow
        self._heard_s = time.monotonic()
        self._behind = {where for where, (start, end) in ranges.items() if start < end}
        wanted = ranges if follow else self._behind
        self._consumer = client.create_consumer({**SETTINGS, "isolation.level": isolation})
        self._consumer.assign([Place(*where, ranges[where].start) for where in sorted(wanted)])

    @property
    def offsets(self) -> int:
        """How many offsets there are to read until the reader has caught up."""
        return sum(max(end - start, 0) for start, end in self._ranges.values())

    @property
    def caught_up(self) -> bool:
        """Whether every partition was read up to its end when the command started."""
        return not self._behind

    def read(self) -> "list[Message]":
        from confluent_kafka import KafkaException

        try:
            first = self._consumer.poll(GLANCE_S)
            arrived = [] if first is None else [first, *self._consumer.consume(RECORDS_MAX, 0)]
        except KafkaException as error:
            raise to_command_error(error, f"topic {self._name_topics()}") from None
        if not arrived:
            self._check_silence()
            return []
        self._heard_s = time.monotonic()
        found = []
        for message in arrived:
            if message.error():
                self._note_event(message)
                continue
            where, offset = find_place(message), locate(message)[1]
            end = self._ranges[where].end
            if offset + 1 >= end:
                self._behind.discard(where)
            if self._follow or offset < end:
                found.append(message)
        if found:
            self._client.connection_errors.clear()
        return found

    def newest(self, count: int) -> "list[Message]":
        """Read until caught up. Returns the `count` newest records by time, and all that arrived since the start."""
        old: dict[TopicPartition, list[Message]] = {where: [] for where in self._ranges}
        new: list[Message] = []
        while not self.caught_up:
            for message in self.read():
                where = find_place(message)
                (old[where] if locate(message)[1] < self._ranges[where].end else new).append(message)
        return [*deque(merge(*old.values(), key=lambda message: message.timestamp()[1]), count), *new]

    def mark_done(self, messages: "Sequence[Message]") -> None:
        """Nothing is committed."""

    def close(self) -> None:
        self._consumer.close()

    def _note_event(self, message: "Message") -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            self._behind.discard(find_place(message))
        elif not is_about_unused_group(error):
            raise CommandError(f"topic {self._name_topics()}: {explain(error)}")

    def _name_topics(self) -> str:
        return ", ".join(repr(topic) for topic in sorted({where.topic for where in self._ranges}))

    def _check_silence(self) -> None:
        """Raise an error if records are missing and none arrives. With `follow` there may be none."""
        now_s = time.monotonic()
        if self._follow:
            return
        if now_s > self._client.connection_errors.give_up_at_s:
            raise self._client.explain_no_broker(self._client.connection_errors.latest)
        if now_s - self._heard_s > OPERATION_S:
            raise CommandError(f"topic {self._name_topics()}: no record has arrived for {OPERATION_S:.0f} s")
