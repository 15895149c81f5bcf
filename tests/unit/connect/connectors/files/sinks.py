"""Batches for sinks of files, and sinks that are made without a worker."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from ottla.connect.connector import Connector, ConnectorContext, SinkBatch
from ottla.connect.data.arrow_types import normalise
from ottla.connect.data.columns import RecordColumns
from ottla.connect.settings.parsing import parse

T = TypeVar("T", bound=Connector)


def make_connector(kind: type[T], **config: Any) -> T:
    given = {name.replace("_", "."): str(value) for name, value in config.items()}
    made = kind(parse(kind.settings, given), ConnectorContext("unit", "workers", 1, {}))
    made.start()
    return made


def make_batch(
    start: int, values: Sequence[Any], times: Sequence[int] | None = None, end: int | None = None
) -> SinkBatch:
    """Values of partition 0 of the topic `t`, without gaps."""
    schema, column = normalise(pa.array(values), optional=False)
    offsets = pa.array(range(start, start + len(values)), pa.int64())
    stamps = pa.array(times or [1_000] * len(values), pa.int64())
    rows = RecordColumns("t", schema, column, timestamp=stamps, offset=offsets)
    return SinkBatch("t", 0, start, start + len(values) if end is None else end, [rows])


def list_files(directory: Path) -> list[str]:
    """The files of a sink, without those that begin with a dot or are in such a directory."""
    found = [path.relative_to(directory) for path in directory.rglob("*") if path.is_file()]
    return sorted(str(path) for path in found if not any(part.startswith(".") for part in path.parts))
