"""Connectors for tests of what surrounds them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from ottla.connect.connector import (
    Part,
    RefusedRecord,
    Sink,
    SinkBatch,
    Source,
    SourceBatch,
    SourceOffset,
    Written,
    partition_key,
)
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.data.record import Header, Record
from ottla.connect.data.schema import Schema, Type
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.settings.definition import REQUIRED, Kind, Setting, Settings

TEXT = Schema(Type.STRING)


class Counting(Source):
    """Counts up to `limit` in each of `parts` partitions, `step` numbers at a time. A file named `trouble` stops it."""

    settings: ClassVar[Settings] = Settings(
        (
            Setting("topic", Kind.STRING, REQUIRED, ""),
            Setting("parts", Kind.INT, 1, ""),
            Setting("limit", Kind.INT, 10, ""),
            Setting("step", Kind.INT, 4, ""),
            Setting("trouble", Kind.STRING, "", ""),
        )
    )

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        parts = [Part({"part": number}) for number in range(self.config["parts"])]
        done = {key: offset["next"] for key, offset in offsets.items()}
        return [each for each in parts if done.get(partition_key(each.partition), 0) < self.config["limit"]]

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        start = 0 if offset is None else offset["next"]
        end = min(start + self.config["step"], self.config["limit"])
        number = part.partition["part"]
        rows = [
            Record(
                self.config["topic"],
                f"{number}:{n}",
                TEXT,
                f"{number}",
                TEXT,
                timestamp=1_000 + n,
                headers=[Header("n", n)],
                partition=number,
            )
            for n in range(start, end)
        ]
        yield SourceBatch([rows[:2]], None)
        trouble = self.config["trouble"]
        if trouble and Path(trouble).exists():
            kind = ConnectError if Path(trouble).read_text() == "bad" and number == 1 else RetriableError
            raise kind(f"part {number} has trouble with hush-hush")
        yield SourceBatch([rows[2:]], {"next": end})


class Collecting(Sink):
    """Appends what it gets to the file `out`, as JSON. It refuses the value `refused`, and `trouble` stops it."""

    settings: ClassVar[Settings] = Settings(
        (Setting("out", Kind.STRING, REQUIRED, ""), Setting("trouble", Kind.STRING, "", ""))
    )

    def write(self, batch: SinkBatch) -> Written:
        if self.config["trouble"] and Path(self.config["trouble"]).exists():
            raise RetriableError("the target is away")
        refused = []
        with Path(self.config["out"]).open("a", encoding="utf-8") as file:
            for rows in batch.rows:
                for record in columns_to_records(rows) if isinstance(rows, RecordColumns) else rows:
                    if record.value == "refused":
                        refused.append(RefusedRecord(record, "the target does not like it"))
                        continue
                    found = [record.topic, record.partition, record.offset, record.key, record.value, record.timestamp]
                    file.write(json.dumps(found) + "\n")
        return Written(refused)


class Shouting:
    """A transformation: upper case; `drop` is left out, and `fail` fails."""

    def apply(self, record: Record) -> Record | None:
        if record.value == "fail":
            raise ValueError("this value cannot be shouted")
        record.value = record.value.upper()
        return None if record.value == "DROP" else record


def read_collected(path: Path) -> list[list[object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
