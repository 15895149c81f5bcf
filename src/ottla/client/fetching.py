"""Fetches the record batches of one partition between two offsets, ready to be decoded.

While the caller works on one answer, the next is in flight. Control batches and batches of aborted transactions are
left out, checksums are verified (`check.crcs`), and gaps left by compaction are skipped. Changes of leader, lost
connections and throttling are retried. Offsets that do not exist any more raise `DataLoss`.
"""

from collections.abc import Generator, Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ottla.client.backoff import Backoff
from ottla.client.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RETRIABLE,
    Client,
    UnknownTopic,
    error_code,
)
from ottla.client.connection import Awaited, Connection, Unreachable
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import (
    CONTROL,
    HEADER_SIZE,
    MAGIC,
    TRANSACTIONAL,
    CorruptBatch,
    read_header,
)
from ottla.records.visibility import HiddenBatches
from ottla.topic_partition import TopicPartition
from ottla.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionResult,
)

MAX_BYTES = 4 * 1024 * 1024
"""The size of one answer; two are in memory at a time. A single batch may be larger."""

MAX_WAIT_MS = 500
EMPTY_ANSWERS_MAX = 3
"""After so many empty answers for a range below the high watermark, compaction must have removed its records."""

_PREFIX = Struct(">qi")
_HEAD = Struct(">qi4xbIh")
"""The fields of a batch header that are needed here: base offset, length, magic, checksum, attributes."""
_ATTRIBUTES_AT = 21
_LOOKED_AT = CONTROL | TRANSACTIONAL


class DataLoss(KafkaError):
    """Records do not exist any more: retention, deletion, or a topic that was created again."""

    def __init__(self, where: TopicPartition, wanted: int, first: int, end: int) -> None:
        message = f"{where}: offset {wanted} does not exist; the log has {first} to {end} (exclusive)"
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.where = where
        self.wanted = wanted
        self.first = first
        self.end = end


def fetch(
    client: Client,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    isolation: int = READ_UNCOMMITTED,
    max_bytes: int = MAX_BYTES,
) -> Generator[memoryview, None, None]:
    """Views of one or more whole record batches each, in order, from offset `start` to `end` (exclusive).

    The first and the last batch may also hold records outside of the range, which the decoder must leave out.
    """
    reader = _Reader(client, TopicPartition(topic, partition), start, end, isolation, max_bytes)
    try:
        while (answer := reader.next_answer()) is not None:
            yield from reader.wanted(answer)
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{topic}-{partition}: {error}") from None
    finally:
        reader.close()


class _SentFetch(NamedTuple):
    connection: Connection
    node: int
    awaited: Awaited


class _Reader:
    def __init__(
        self, client: Client, where: TopicPartition, start: int, end: int, isolation: int, max_bytes: int
    ) -> None:
        self._client = client
        self._where = where
        self._position = start
        self._end = end
        self._isolation = isolation
        self._max_bytes = max_bytes
        self._asked: _SentFetch | None = None
        self._backoff: Backoff | None = None
        self._empty = 0

    def close(self) -> None:
        if self._asked is not None:
            self._asked.connection.abandon(self._asked.awaited)
            self._asked = None

    def next_answer(self) -> PartitionResult | None:
        """The next answer that has records, after sending the request for the one after it; None at the end."""
        while self._position < self._end:
            try:
                result = self._receive()
            except Unreachable as error:
                self._client.forget_topic(self._where.topic)
                self._wait(error)
                continue
            except KafkaError as error:
                if error.code not in RETRIABLE or isinstance(error, UnknownTopic):
                    raise
                self._wait(error)
                continue
            if result is None:
                self._wait(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self._where}: the broker sends empty answers"))
                continue
            if not self._accept(result):
                continue
            self._backoff = None
            self._empty = 0
            return result
        return None

    def _accept(self, result: PartitionResult) -> bool:
        """Whether the answer has records to decode; if so, sends the request for the next ones."""
        code = error_code(result.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._check_range()
        if code:
            if code not in RETRIABLE and code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise KafkaError(code, f"{self._where} at offset {self._position}")
            self._client.forget_topic(self._where.topic)
            self._wait(KafkaError(code, str(self._where)))
            return False
        following = _find_end(result.records)
        if following <= self._position:
            self._handle_empty_answer(result)
            return False
        self._position = following
        if following < self._end:
            try:
                self._ask()
            except (Unreachable, KafkaError):
                self._asked = None  # the next call sends it again, and handles the error
        return True

    def _handle_empty_answer(self, result: PartitionResult) -> None:
        if result.records:  # an old broker has cut off a batch that is larger than max_bytes
            self._max_bytes *= 2
            return
        visible = result.last_stable_offset if self._isolation == READ_COMMITTED else result.high_watermark
        if visible >= self._end:
            self._empty += 1
            if self._empty >= EMPTY_ANSWERS_MAX:  # compaction has left nothing up to the end
                self._position = self._end
            return
        message = f"{self._where}: the log ends at {visible}, before the requested end {self._end}"
        self._wait(KafkaError(ErrorCode.REQUEST_TIMED_OUT, message))

    def _check_range(self) -> None:
        """Raises DataLoss unless the offset exists: after a change of leader, OFFSET_OUT_OF_RANGE may be wrong."""
        first = self._client.list_offsets({self._where: EARLIEST})[self._where].offset
        end = self._client.list_offsets({self._where: LATEST})[self._where].offset
        if not first <= self._position <= end:
            raise DataLoss(self._where, self._position, first, end)

    def _wait(self, error: Exception) -> None:
        if self._backoff is None:
            self._backoff = self._client.start_backoff()
        if not self._backoff.pause():
            raise error

    # Requests

    def _ask(self) -> None:
        client, where = self._client, self._where
        leader = client.find_leader(*where)
        partition = FetchPartition(
            where.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=self._position,
            max_bytes=self._max_bytes,
        )
        topic = FetchTopic(where.topic, client.find_topic_id(where.topic), [partition])
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._max_bytes,
            isolation_level=self._isolation,
            topics=[topic],
        )
        connection = client.connect(leader.node)
        try:
            self._asked = _SentFetch(connection, leader.node, connection.send(request))
        except Unreachable:
            client.disconnect(leader.node)
            raise

    def _receive(self) -> PartitionResult | None:
        """The answer for the partition; None if the answer is empty, as that of a broker that throttles."""
        if self._asked is None:
            self._ask()
        asked, self._asked = self._asked, None
        assert asked is not None
        try:
            response: FetchResponse = asked.connection.receive(asked.awaited)
        except Unreachable:
            self._client.disconnect(asked.node)
            raise
        if response.throttle_time_ms:
            self._client.start_backoff().throttle(response.throttle_time_ms / 1000)
        if response.error_code:
            raise KafkaError(error_code(response.error_code), str(self._where))
        if not response.topics or not response.topics[0].partitions:
            return None
        return response.topics[0].partitions[0]

    # Batches

    def wanted(self, result: PartitionResult) -> Iterator[memoryview]:
        """The batches of an answer that are visible to the reader, in as few pieces as possible."""
        records = result.records
        assert isinstance(records, memoryview)
        is_committed = self._isolation == READ_COMMITTED
        hidden = HiddenBatches((result.aborted_transactions or ()) if is_committed else None)
        check_crcs = self._client.settings.check_crcs
        begin = position = 0
        size = len(records)
        while size - position >= HEADER_SIZE:
            base_offset, length, magic, checksum, attributes = _HEAD.unpack_from(records, position)
            end = position + length + _PREFIX.size
            if end > size or base_offset >= self._end:
                break
            if magic != MAGIC:
                raise CorruptBatch(f"the batch with base offset {base_offset} has magic {magic}")
            if check_crcs and crc32c(records[position + _ATTRIBUTES_AT : end]) != checksum:
                raise CorruptBatch(f"the batch with base offset {base_offset} fails its checksum")
            if attributes & _LOOKED_AT and hidden.hides(read_header(records, position), records, position):
                if position > begin:
                    yield records[begin:position]
                begin = end
            position = end
        if position > begin:
            yield records[begin:position]


def _find_end(records: object) -> int:
    """The offset after the last whole batch; -1 if there is none. Reads only two fields of each batch, for speed."""
    if not isinstance(records, memoryview):
        return -1
    position, size, last = 0, len(records), -1
    while size - position >= HEADER_SIZE:
        length = _PREFIX.unpack_from(records, position)[1] + _PREFIX.size
        if length < HEADER_SIZE:
            raise CorruptBatch(f"a record batch of {length} bytes")
        if position + length > size:
            break
        last = position
        position += length
    return -1 if last < 0 else read_header(records, last).next_offset
