"""DirectorySource: the rows of all files of a directory, also of files that are added or grow later.

Each file is a source partition {"filename": ...}. Lines of text, JSON and CSV are read as they are appended. Parquet
and Avro files are read when they are there, so they must appear under their names as a whole, by a rename.
"""

import fnmatch
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from ottla.connect.connector import ConnectorContext, Part, Source, SourceBatch, SourceOffset, partition_key
from ottla.connect.connectors.files.avro_files import read_avro
from ottla.connect.connectors.files.csv_types import NAMES, are_types, find_types, read_types
from ottla.connect.connectors.files.file_source import FILENAME, LINE, POSITION
from ottla.connect.connectors.files.lines import has_line, read_lines
from ottla.connect.data.arrow_types import normalise
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.record import Record
from ottla.connect.errors import ConnectError
from ottla.connect.settings.checks import one_of
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings

SIZE: Final = "size"
"""In an offset: the size of a file that was read to its end."""
TYPES: Final = "types"
"""In an offset: the types that the columns of a CSV file were found to have, as JSON."""
BATCH_ROWS: Final = 10_000
LINE_FORMATS: Final = ("text", "json", "csv")
FORMATS: Final = (*LINE_FORMATS, "parquet", "avro")


class DirectorySource(Source):
    settings: ClassVar[Settings] = Settings(
        (
            Setting("directory", Kind.STRING, REQUIRED, "The directory to read.", Importance.HIGH),
            Setting("topic", Kind.STRING, REQUIRED, "The topic to write to.", Importance.HIGH),
            Setting(
                "format", Kind.STRING, "text", "text, json, csv, parquet or avro.", Importance.HIGH, one_of(*FORMATS)
            ),
            Setting("file.pattern", Kind.STRING, "*", "Which files are read: `*` and `?` as in a shell."),
            Setting("csv.separator", Kind.STRING, ",", "The character between the values of a line."),
            Setting(
                "csv.types",
                Kind.LIST,
                (),
                f"Types of columns, as column:type: {', '.join(NAMES)}. Others are string, unless csv.infer.types.",
                check=are_types,
            ),
            Setting(
                "csv.infer.types",
                Kind.BOOLEAN,
                False,
                "Whether columns that csv.types does not name get the type that the first lines of a file look like.",
            ),
        )
    )
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._format: str = config["format"]
        self._topic: str = config["topic"]

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        parts = []
        try:
            entries = sorted(os.scandir(self.config["directory"]), key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        for entry in entries:
            if entry.name.startswith(".") or not fnmatch.fnmatchcase(entry.name, self.config["file.pattern"]):
                continue
            partition = {FILENAME: entry.path}
            offset = offsets.get(partition_key(partition), {})
            if entry.is_file() and self._has_more(entry, offset):
                parts.append(Part(partition))
        return parts

    def _has_more(self, entry: "os.DirEntry[str]", offset: SourceOffset) -> bool:
        size = entry.stat().st_size
        if self._format not in LINE_FORMATS:
            return bool(size != offset.get(SIZE))
        position = int(offset.get(POSITION, 0))
        if size <= position:
            return False
        with open(entry.path, "rb") as file:
            return has_line(file, position)

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        path, position = part.partition[FILENAME], 0 if offset is None else int(offset[POSITION])
        with open(path, "rb") as file:
            if self._format == "csv":
                batches = self._read_csv(file, offset)
            elif self._format in LINE_FORMATS:
                batches = self._read_lines(file, position)
            else:
                batches = self._read_whole(file, position, None if offset is None else offset.get(SIZE))
            yield from batches

    def _read_lines(self, file: BinaryIO, position: int) -> Iterator[SourceBatch]:
        for lines, following in read_lines(file, position, BATCH_ROWS):
            yield SourceBatch([self._to_rows(lines, file.name)], {POSITION: following})

    def _read_csv(self, file: BinaryIO, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        """The first line names the columns. The types that were found out are part of the offset."""
        file.seek(0)
        head, end = next(read_lines(file, 0, 1))
        names = self._parse_csv(head, None, {}).column_names
        given = read_types(self.config["csv.types"])
        inferred: dict[str, str] = {} if offset is None else json.loads(offset.get(TYPES, "{}"))
        start = end if offset is None else max(int(offset[POSITION]), end)
        for lines, following in read_lines(file, start, BATCH_ROWS):
            if self.config["csv.infer.types"] and not inferred:
                inferred = find_types(self._parse_csv(lines, names, given))
            kinds = {name: NAMES[inferred.get(name, "string")] for name in names} | given
            rows = self._to_columns(self._parse_csv(lines, names, kinds))
            found = {TYPES: json.dumps(inferred)} if inferred else {}
            yield SourceBatch([rows], {POSITION: following, **found})

    def _to_rows(self, lines: pa.Array, path: str) -> RecordColumns | list[Record]:
        if self._format == "text":
            return RecordColumns(self._topic, LINE, lines)
        try:
            return [Record(self._topic, json.loads(line)) for line in lines.to_pylist() if line.strip()]
        except ValueError as error:
            raise ConnectError(f"{path} has a line that is no JSON: {error}") from None

    def _parse_csv(self, lines: pa.Array, names: list[str] | None, kinds: Mapping[str, pa.DataType]) -> pa.Table:
        """A column without a kind gets one from its values. An empty value without quotes is null. A value has no end
        of a line in it."""
        text = "\n".join(lines.to_pylist()) + "\n"
        try:
            return pa_csv.read_csv(
                pa.BufferReader(text.encode()),
                pa_csv.ReadOptions(column_names=names),
                pa_csv.ParseOptions(delimiter=self.config["csv.separator"]),
                pa_csv.ConvertOptions(
                    column_types=dict(kinds),
                    strings_can_be_null=True,
                    null_values=[""],
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            advice = "; csv.types can name another type" if kinds else ""
            raise ConnectError(f"the lines are no CSV, or not of their columns' types: {error}{advice}") from None

    def _to_columns(self, table: pa.Table) -> RecordColumns:
        column = table.combine_chunks().to_struct_array()
        schema, values = normalise(column, optional=False)
        return RecordColumns(self._topic, schema, values)

    def _read_whole(self, file: BinaryIO, position: int, size: int | None) -> Iterator[SourceBatch]:
        """Rows after so many. If the file was replaced after it was read to its end, it is read from its beginning."""
        position = 0 if size is not None else position
        found = read_avro(file, position) if self._format == "avro" else read_parquet(file, position)
        for column in found:
            position += len(column)
            schema, values = normalise(column, optional=False)
            yield SourceBatch([RecordColumns(self._topic, schema, values)], {POSITION: position})
        yield SourceBatch([], {POSITION: position, SIZE: os.fstat(file.fileno()).st_size})


def read_parquet(file: BinaryIO, rows_before: int) -> Iterator[pa.Array]:
    try:
        found = pq.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise ConnectError(f"{file.name} is no Parquet file: {error}") from None
    for batch in found.iter_batches(BATCH_ROWS):
        if batch.num_rows <= rows_before:
            rows_before -= batch.num_rows
            continue
        yield batch.slice(rows_before).to_struct_array()
        rows_before = 0
