"""S3Source: the rows of the objects below a prefix of a bucket, also of objects that are added later.

Each object is a source partition {"bucket": ..., "key": ...}. Its offset has the number of rows that were read, and the
ETag of the object: an object that is replaced is read again from its beginning.
"""

import gzip
import io
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from ottla.connect.connector import MAX_ROWS, ConnectorContext, Part, Source, SourceBatch, SourceOffset, partition_key
from ottla.connect.connectors.files.avro_files import read_avro
from ottla.connect.connectors.files.directory_source import BATCH_ROWS, read_parquet
from ottla.connect.connectors.s3.bucket import Bucket
from ottla.connect.connectors.s3.settings import SOURCE_SETTINGS, find_address, find_format_name, list_topic_patterns
from ottla.connect.data.arrow_types import normalise
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import ConnectError
from ottla.connect.settings.definition import Settings

BUCKET: Final = "bucket"
KEY: Final = "key"
POSITION: Final = "position"
ETAG: Final = "etag"
IS_DONE: Final = "done"
BYTES: Final = Schema(Type.BYTES)


class _Content(io.BytesIO):
    """The content of an object, as a file that has a name."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(data)
        self.name = name


class S3Source(Source):
    settings: ClassVar[Settings] = SOURCE_SETTINGS
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._bucket = Bucket(find_address(config))
        self._format = find_format_name(config)
        self._topics = list_topic_patterns(config)
        self._idle_since_s: float | None = None

    def start(self) -> None:
        self._bucket.check()

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        now_s, interval_s = time.monotonic(), self.config["s3.poll.interval.ms"] / 1000
        if self._idle_since_s is not None and now_s - self._idle_since_s < interval_s:
            return []
        parts = []
        for key, size, etag in self._bucket.list_objects(f"{self.config['topics.dir']}/"):
            topic = self._find_topic(key)
            partition = {BUCKET: self.config["s3.bucket.name"], KEY: key}
            offset = offsets.get(partition_key(partition), {})
            if size and topic is not None and (offset.get(ETAG) != etag or not offset.get(IS_DONE)):
                parts.append(Part(partition, {"topic": topic}))
        self._idle_since_s = None if parts else now_s
        return parts

    def _find_topic(self, key: str) -> str | None:
        """None for an object that is not to be read. The ledgers of sinks are such objects."""
        if any(name.startswith(".") for name in key.split("/")):
            return None
        return next((topic for topic, pattern in self._topics if re.fullmatch(pattern, key)), None)

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        key = part.partition[KEY]
        found = self._bucket.get(key)
        if found is None:  # it was deleted after it was listed
            return
        data, etag = found
        is_same = offset is not None and offset.get(ETAG) == etag
        position = int(offset[POSITION]) if offset is not None and is_same else 0
        first = position
        for rows in self._read_rows(key, data, part.work["topic"], position):
            position += len(rows)
            yield SourceBatch([rows], {POSITION: position, ETAG: etag, IS_DONE: False})
            if position - first >= MAX_ROWS:
                return
        yield SourceBatch([], {POSITION: position, ETAG: etag, IS_DONE: True})

    def _read_rows(self, key: str, data: bytes, topic: str, position: int) -> Iterator[RecordColumns | list[Record]]:
        if key.endswith(".gz"):
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError) as error:
                raise ConnectError(f"{key} is not compressed with gzip: {error}") from None
        if self._format in ("avro", "parquet"):
            content = _Content(key, data)
            read = read_avro if self._format == "avro" else read_parquet
            for column in read(content, position):
                schema, values = normalise(column, optional=False)
                yield RecordColumns(topic, schema, values)
            return
        separator = self.config["format.bytearray.separator"].encode() if self._format == "bytes" else b"\n"
        lines = data.removesuffix(separator).split(separator)
        for first in range(position, len(lines), BATCH_ROWS):
            yield self._to_rows(key, topic, lines[first : first + BATCH_ROWS])

    def _to_rows(self, key: str, topic: str, lines: Sequence[bytes]) -> RecordColumns | list[Record]:
        if self._format == "bytes":
            return RecordColumns(topic, BYTES, pa.array(lines, pa.binary()))
        try:
            return [Record(topic, json.loads(line)) for line in lines]
        except ValueError as error:
            raise ConnectError(f"{key} has a line that is no JSON: {error}") from None
