"""Data sources of PySpark as somebody's package has them, for tests: numbers out of a file, and rows into one."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


class Numbers(DataSource):
    """The numbers up to the one in the file `upto`: a stream whose batches have two partitions."""

    def schema(self) -> str:
        return "n INT NOT NULL, pair STRUCT<half: DOUBLE, text: STRING>"

    def find_end(self) -> int:
        return int(Path(self.options["upto"]).read_text())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Stream(self)


class SimpleNumbers(Numbers):
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        raise NotImplementedError

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return _SimpleStream(self)


class AllNumbers(Numbers):
    """No stream."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        raise NotImplementedError

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Whole(self)


def make_row(n: int) -> tuple[int, tuple[float, str | None]]:
    return n, (n / 2, f"number {n}" if n % 3 else None)


class _Range(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))


class _Stream(DataSourceStreamReader):
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"n": self._numbers.find_end()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        middle = (start["n"] + end["n"]) // 2
        return [_Range(start["n"], middle), _Range(middle, end["n"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from map(make_row, range(*partition.value))


class _SimpleStream(SimpleDataSourceStreamReader):
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[Any], dict[str, int]]:
        end = self._numbers.find_end()
        return map(make_row, range(start["n"], end)), {"n": end}


class _Whole(DataSourceReader):
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from map(make_row, range(self._numbers.find_end()))


class Lines(DataSource):
    """Writes rows as lines of JSON to the file `path`, once they are committed."""

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _Writer(Path(self.options["path"]))


class _Message(WriterCommitMessage):
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines


class _Writer(DataSourceWriter):
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _Message([json.dumps(row.asDict(recursive=True)) for row in iterator])

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with self._path.open("a") as file:
            file.writelines(f"{line}\n" for each in messages if isinstance(each, _Message) for line in each.lines)
