"""A log of events in a directory, and its topics."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from types import TracebackType

from ottla.cluster.topics import NewTopic, create_topics, delete_topic, is_internal
from ottla.errors import ErrorCode, KafkaError
from ottla.log.engine import Engine, LogClosed
from ottla.records.batch import check, check_client_batch, decode, encode, headers
from ottla.records.compression import NAMES
from ottla.records.record import Fields, Record
from ottla.records.record import Headers as RecordHeaders
from ottla.records.visibility import HiddenBatches
from ottla.replication.partition import Partition, PartitionRead
from ottla.replication.validation import CheckedBatch

READ_BYTES = 1 << 20
"""How much of the log a reader has in memory."""
ALL = -1
ONE_REPLICA = 1


class EventLog:
    """Topics in a directory. May be used from several threads, and as a context manager."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write everything to the disk and end. A second call does nothing."""
        self._engine.close()

    @property
    def topics(self) -> list[str]:
        """The names of all topics but the internal ones of a broker."""
        image = self._engine.call(lambda: self._engine.node.image)
        return sorted(name for name in image.topics_by_name if not is_internal(name))

    def topic(self, name: str, *, partitions: int = 1, settings: Mapping[str, str] | None = None) -> "Topic":
        """The topic with this name. If there is none, it is created with these partitions and these settings, such as
        `{"cleanup.policy": "compact"}` or `{"retention.ms": "86400000"}`; otherwise both are ignored."""
        self._engine.run(self._create(NewTopic(name, partitions, ONE_REPLICA, configs=dict(settings or {}))))
        return Topic(self._engine, name)

    async def _create(self, topic: NewTopic) -> None:
        node = self._engine.node
        if node.image.topic(topic.name) is not None:
            return
        decide = partial(create_topics, topics=[topic], config=node.config, random=node.random)
        (created,) = await node.metadata.change(decide)
        if isinstance(created, KafkaError) and created.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise created
        await node.replication.reconciliation.wait_until_created()

    def delete(self, name: str) -> None:
        """Delete a topic with all its records. KafkaError if there is none of that name."""
        self._engine.run(self._delete(name))

    async def _delete(self, name: str) -> None:
        node = self._engine.node
        topic = node.image.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        await node.metadata.change(partial(delete_topic, topic_id=topic.id))


class Topic:
    """A topic of an `EventLog`. All methods take the number of a partition, which is 0 unless it is given."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name

    # Writing

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: RecordHeaders = (),
        timestamp_ms: int | None = None,
        partition: int = 0,
    ) -> int:
        """Append a record and return its offset. Without a timestamp it gets the current time.

        A killed process loses nothing that was appended. A power cut may lose what `flush` was not called for.
        """
        return self.append_many([(key, value, headers, self._to_milliseconds(timestamp_ms))], partition=partition).start

    def append_many(
        self, records: Iterable[Fields | Record], *, compression: str = "none", partition: int = 0
    ) -> range:
        """Append records in one batch: all of them or none. Returns their offsets.

        A record is a tuple of key, value, headers and timestamp in milliseconds, or a `Record`, of which the offset is
        not kept. This is much faster than to append them one by one.
        """
        if compression not in NAMES:
            raise ValueError(f"compression: {compression!r} is none of {', '.join(NAMES)}")
        fields = [
            (each.key, each.value, each.headers, each.timestamp) if isinstance(each, Record) else each
            for each in records
        ]
        if not fields:
            end = self.end_offset(partition)
            return range(end, end)
        batch = encode(fields, codec=NAMES.index(compression))
        return self._engine.run(self._append(memoryview(batch), partition))

    async def _append(self, batch: memoryview, index: int) -> range:
        node, partition = self._engine.node, self._find(index)
        header = check_client_batch(batch)
        now_ms = node.clock.now_ms()
        partition.admit(header, ALL)
        checked = node.record_checks.check(batch, header, partition.rules, now_ms)
        result = checked if isinstance(checked, CheckedBatch) else await checked
        if isinstance(result, KafkaError):
            raise result
        appended = partition.append(result.records, result.header, now_ms, ALL)
        acknowledged = partition.wait_for_acks(appended, ALL)
        if acknowledged is not None:
            await acknowledged
        return range(appended.base_offset, appended.last_offset + 1)

    def flush(self, partition: int = 0) -> None:
        """Return when every record of the partition is on the disk."""
        self._engine.run(self._flush(partition))

    async def _flush(self, index: int) -> None:
        partition = self._find(index)
        end = partition.log.end_offset
        if partition.durable.value < end:
            partition.flushing.request()
            await partition.durable.reach(end)

    def trim(self, before: int, partition: int = 0) -> None:
        """Delete the records with an offset below `before`."""
        self._engine.run(self._trim(before, partition))

    async def _trim(self, before: int, index: int) -> None:
        self._find(index).delete_records(before)
        await self._engine.node.replication.log_starts.write()

    # Reading

    @property
    def partitions(self) -> int:
        return self._engine.call(lambda: len(self._engine.node.replicas.of_topic(self.name)))

    def start_offset(self, partition: int = 0) -> int:
        """The offset of the oldest record."""
        return self._engine.call(lambda: self._find(partition).log.log_start_offset)

    def end_offset(self, partition: int = 0) -> int:
        """The offset that the next record gets."""
        return self._engine.call(lambda: self._find(partition).high_watermark.value)

    def offset_at(self, time: datetime | int, partition: int = 0) -> int:
        """The offset of the first record at or after a time, a datetime or milliseconds since 1970; without such a
        record the end offset."""
        timestamp = int(time.timestamp() * 1000) if isinstance(time, datetime) else time

        def find() -> int:
            place = self._find(partition)
            end = place.high_watermark.value
            found = place.log.find_offset_for_timestamp(timestamp, end)
            return end if found is None else found.offset

        return self._engine.call(find)

    def read(
        self,
        start: int | None = None,
        *,
        since: datetime | int | None = None,
        partition: int = 0,
        follow: bool = False,
    ) -> Iterator[Record]:
        """Records in order: from the offset `start`, from the first one at or after the time `since`, or from the
        oldest. Ends after the newest record; with `follow` it waits for more, until the log is closed.

        Records that retention or `trim` have removed are passed over. KafkaError if `start` is above the end.
        """
        if start is not None and since is not None:
            raise ValueError("give either an offset or a time to read from, not both")
        if since is not None:
            start = self.offset_at(since, partition)
        position = self.start_offset(partition) if start is None else start
        return self._read_from(position, partition, follow)

    def _read_from(self, position: int, index: int, follow: bool) -> Iterator[Record]:
        while True:
            try:
                data, found, position = self._engine.call(partial(self._read_once, index, position))
                if follow and not data:
                    self._engine.run(self._wait(index, position))
            except LogClosed:
                if follow:
                    return
                raise
            if data:
                records, position = _take_records(data, found, position)
                yield from records
            elif not follow:
                return

    def _read_once(self, index: int, position: int) -> tuple[bytes, PartitionRead, int]:
        """Batches from a position on, what is known of them, and the position, moved over what does not exist."""
        partition = self._find(index)
        position = max(position, partition.log.log_start_offset)
        found = partition.read(position, READ_BYTES, read_committed=True, at_least_one=True)
        if found.records is None:  # at the end, or compaction has removed everything up to it
            return b"", found, max(position, found.last_stable_offset)
        return found.records.read(), found, position

    async def _wait(self, index: int, position: int) -> None:
        partition, moved = self._find(index), asyncio.Event()
        partition.high_watermark.watch(moved.set)
        try:
            if partition.last_stable_offset <= position:
                await moved.wait()
        finally:
            partition.high_watermark.unwatch(moved.set)

    def _find(self, index: int) -> Partition:
        return self._engine.node.replicas.get(self.name, index)

    def _to_milliseconds(self, timestamp_ms: int | None) -> int:
        return self._engine.node.clock.now_ms() if timestamp_ms is None else timestamp_ms


def _take_records(data: bytes, found: PartitionRead, start: int) -> tuple[list[Record], int]:
    """The visible records at or after `start` in the whole batches of `data`, and the offset after these batches."""
    hidden = HiddenBatches(found.aborted or ())
    records: list[Record] = []
    following = start
    for position, header in headers(data):
        if header.base_offset >= found.last_stable_offset:
            break
        check(data, position)
        if not hidden.hides(header, data, position):
            records += (record for record in decode(data, position) if record.offset >= start)
        following = header.next_offset
    return records, following
