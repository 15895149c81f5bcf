"""FileStreamSource: the lines of a growing text file, as Kafka's FileStreamSourceConnector reads them.

The file may be created later. Like Kafka's, the connector does not notice that the file was replaced: it goes on at the
position that it had, and says so once if the file has become shorter than that.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from logging import getLogger
from typing import Any, ClassVar, Final

import pyarrow as pa

from ottla.connect.connector import (
    ConnectorContext,
    Part,
    Source,
    SourceBatch,
    SourceOffset,
    SourcePartition,
    partition_key,
)
from ottla.connect.connectors.files.lines import has_line, read_lines
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import BadConfig, ConnectError
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings

log = getLogger(__name__)

FILENAME: Final = "filename"
POSITION: Final = "position"
LINE: Final = Schema(Type.STRING)


def _check_batch_size(_: str, value: int) -> None:
    if value < 1:
        raise ValueError("Value must be at least 1")


class FileStreamSource(Source):
    settings: ClassVar[Settings] = Settings(
        (
            Setting("file", Kind.STRING, None, "The file to read.", Importance.HIGH),
            Setting("topic", Kind.STRING, REQUIRED, "The topic to write to.", Importance.HIGH),
            Setting(
                "batch.size", Kind.INT, 2000, "How many lines are handled at once.", Importance.LOW, _check_batch_size
            ),
        )
    )
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        if not config["file"]:
            raise BadConfig("file: it is missing; a worker has no standard input to read")
        self._path: str = config["file"]
        self._topic: str = config["topic"]
        self._batch_rows = max(config["batch.size"], 1)
        self._has_warned = False

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        partition = {FILENAME: self._path}
        position = int(offsets.get(partition_key(partition), {}).get(POSITION, 0))
        try:
            with open(self._path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < position and not self._has_warned:
                    self._has_warned = True
                    log.warning(
                        "%s has %d bytes, and %d were read before: it was cut or replaced. Lines before that position"
                        " are not read; reset the connector's offsets to read the file from its beginning",
                        self._path,
                        size,
                        position,
                    )
                return [Part(partition)] if size > position and has_line(file, position) else []
        except FileNotFoundError:
            if not self._has_warned:
                self._has_warned = True
                log.warning("%s does not exist; waiting for it to be created", self._path)
            return []

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        start = 0 if offset is None else int(offset[POSITION])
        with open(self._path, "rb") as file:
            for lines, position in read_lines(file, start, self._batch_rows):
                yield SourceBatch([self._to_rows(lines)], {POSITION: position})

    def check_offset(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        if not isinstance(partition.get(FILENAME), str):
            raise ConnectError(f'a partition of this source is {{"{FILENAME}": "path"}}, not {dict(partition)}')
        position = 0 if offset is None else offset.get(POSITION)
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise ConnectError(f'an offset of this source is {{"{POSITION}": 0}} or null, not {offset}')

    def _to_rows(self, lines: pa.Array) -> RecordColumns:
        return RecordColumns(self._topic, LINE, lines)
