"""Reads the records of a topic: the newest backwards, or forwards from an offset or a time, with a search.

A read is a scan over windows of offsets, the same number in each partition, until enough records match or the budget is
used up. What was read says where to go on: the next position in each partition.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from typing import NamedTuple

from ottla.client.client import READ_UNCOMMITTED, Client
from ottla.client.fetching import DataLoss, fetch
from ottla.records import batch
from ottla.records.record import Headers
from ottla.topic_partition import TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FETCH_BYTES = 1024 * 1024
SCANNED_MAX = 50_000
"""Records that one request may look at."""
BYTES_MAX = 64 * 1024 * 1024
WINDOW_MAX = 2_000

Positions = dict[int, int]
"""By partition: the next offset to read forwards, or the offset before which to read on backwards."""


class FoundRecord(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    codec: str
    producer_id: int

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


class Scan(NamedTuple):
    topic: str
    first: Mapping[int, int]
    end: Mapping[int, int]
    positions: Mapping[int, int]
    backwards: bool
    limit: int
    isolation: int = READ_UNCOMMITTED


@dataclass
class Page:
    records: list[FoundRecord]
    """Newest first if read backwards, oldest first otherwise."""
    scanned: int = 0
    bytes: int = 0
    next_positions: Positions = field(default_factory=dict)
    is_complete: bool = True
    """Whether the scan has reached the end of what there is."""


Matcher = Callable[[FoundRecord], bool]


def read_range(
    client: Client,
    where: TopicPartition,
    start: int,
    end: int,
    isolation: int = READ_UNCOMMITTED,
    max_bytes: int = FETCH_BYTES,
) -> Iterator[FoundRecord]:
    """The records from offset `start` to `end` (exclusive). What retention deletes meanwhile is skipped."""
    while start < end:
        try:
            for piece in fetch(client, *where, start, end, isolation=isolation, max_bytes=max_bytes):
                for found in decode_piece(piece, where.partition):
                    if start <= found.offset < end:
                        yield found
            return
        except DataLoss as loss:
            if loss.first <= start:
                return
            start = loss.first


def decode_piece(piece: memoryview, partition: int) -> Iterator[FoundRecord]:
    for position, header in batch.headers(piece):
        if header.is_control:
            continue
        codec = CODECS[header.codec] if header.codec < len(CODECS) else str(header.codec)
        for record in batch.decode(piece, position):
            yield FoundRecord(
                partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                record.headers,
                codec,
                header.producer_id,
            )


def scan(client: Client, wanted: Scan, matches: Matcher | None = None) -> Page:
    """Read until `limit` records match, the budget is used up, or there are no more."""
    page = Page([])
    found: dict[int, list[FoundRecord]] = {number: [] for number in wanted.positions}
    edges = dict(wanted.positions)
    window = max(min(wanted.limit, WINDOW_MAX), 1)
    while sum(map(len, found.values())) < wanted.limit:
        moving = [number for number in edges if _has_more(wanted, number, edges[number])]
        if not moving or page.scanned >= SCANNED_MAX or page.bytes >= BYTES_MAX:
            break
        for number in moving:
            start, stop = _window(wanted, number, edges[number], window)
            for record in read_range(client, TopicPartition(wanted.topic, number), start, stop, wanted.isolation):
                page.scanned += 1
                page.bytes += record.size
                if matches is None or matches(record):
                    found[number].append(record)
            edges[number] = start if wanted.backwards else stop
        window = min(window * 2, WINDOW_MAX)
    _select(wanted, found, edges, page)
    return page


def _has_more(wanted: Scan, number: int, edge: int) -> bool:
    return edge > wanted.first[number] if wanted.backwards else edge < wanted.end[number]


def _window(wanted: Scan, number: int, edge: int, size: int) -> tuple[int, int]:
    if wanted.backwards:
        return max(wanted.first[number], edge - size), edge
    return edge, min(wanted.end[number], edge + size)


def _select(wanted: Scan, found: dict[int, list[FoundRecord]], edges: Positions, page: Page) -> None:
    """Keep the first `limit` records, by time and in each partition by offset, and note where partitions go on."""
    lists = [sorted(records, key=_offset, reverse=wanted.backwards) for records in found.values()]
    everything = list(merge(*lists, key=_time, reverse=wanted.backwards))
    page.records = everything[: wanted.limit]
    page.next_positions = edges
    for record in everything[wanted.limit :]:  # they come first on the next page
        edge = page.next_positions[record.partition]
        if wanted.backwards:
            page.next_positions[record.partition] = max(edge, record.offset + 1)
        else:
            page.next_positions[record.partition] = min(edge, record.offset)
    page.is_complete = not any(_has_more(wanted, number, edge) for number, edge in page.next_positions.items())


def _offset(record: FoundRecord) -> int:
    return record.offset


def _time(record: FoundRecord) -> int:
    return record.timestamp
