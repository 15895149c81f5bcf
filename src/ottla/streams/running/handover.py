"""What the first Python worker of a Spark task tells the second one besides rows: a file for each attempt of a task.

Between the two, Spark computes the user's Columns, which may drop every row and know nothing of positions and bad
records. Columns that the steps do not change, most of our own (`_offset`, `_headers` and so on) among them, go this way
too, because Spark takes much longer to pass on a column than the steps themselves take. Both workers are on the same
machine, and the second one has read all rows of the first before it looks.

Spark removes the directory of the files when it ends, unless it is killed. The directory's name has the process of the
executor, so the next run of the app finds the directories that nobody uses any more. It has not the
process that a worker was forked from: if that one is killed, its workers live on and work together with those of the
next one.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from ottla.streams.running.work import Failure, Position

_FACTS: Final = b"facts"
_DIRECTORY: Final = "ottla-handover"
_EXECUTOR: Final = "OTTLA_EXECUTOR"
"""The environment variable with the process of the executor, a JVM. Workers inherit it from their daemon."""


@dataclass(frozen=True)
class Handover:
    positions: Sequence[Position] = ()
    bad: pa.Table = field(default_factory=lambda: pa.table({}))
    source_times: Mapping[int, int] = field(default_factory=dict)
    kept: pa.Table = field(default_factory=lambda: pa.table({}))
    """The place (`ORDER`) of each row that was read, and the columns that do not come through Spark."""
    failed: pa.Table = field(default_factory=lambda: pa.table({}))
    """Rows that are not among those for Spark because it fails for them."""
    row_count: int = 0
    """How many rows were read, those included that do not matter any more."""
    failure: Failure | None = None


def note_executor() -> None:
    """In the process that workers are forked from, which the executor has started."""
    os.environ[_EXECUTOR] = str(os.getppid())


def make_handover_path(app: str, attempt: int) -> str:
    """In a directory of this executor that Spark removes. Attempts of an application's tasks have different numbers."""
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    return os.path.join(directory, f"{_DIRECTORY}-{app}-{os.environ.get(_EXECUTOR, '0')}", str(attempt))


def send_handover(place: str, handover: Handover) -> None:
    failure = handover.failure
    facts = [
        handover.positions,
        list(handover.source_times.items()),
        None if failure is None else [failure.kind, failure.message],
        handover.row_count,
    ]
    bad = handover.bad.replace_schema_metadata({_FACTS: json.dumps(facts).encode()})
    directory = Path(place).parent
    if not directory.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_abandoned(directory)
    with pa.OSFile(place, "wb") as file:
        for table in (bad, handover.kept, handover.failed):
            with pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)


def _remove_abandoned(directory: Path) -> None:
    """Remove the directories of earlier runs of the app whose processes are gone. Spark's own directories, which they
    are in, lie side by side."""
    start = directory.name.rpartition("-")[0] + "-"
    for other in directory.parent.parent.glob(f"*/{start}*"):
        owner = other.name.removeprefix(start)
        if owner.isdecimal() and int(owner) and not _is_running(int(owner)):
            shutil.rmtree(other, ignore_errors=True)


def _is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def receive_handover(place: str) -> Handover:
    """Reads the file and removes it."""
    with pa.memory_map(place, "rb") as file:
        bad, kept, failed = (pa.ipc.open_stream(file).read_all() for _ in range(3))
    os.unlink(place)
    positions, times, failure, row_count = json.loads(bad.schema.metadata[_FACTS])
    return Handover(
        [Position(*each) for each in positions],
        bad.replace_schema_metadata(None),
        dict(times),
        kept,
        failed,
        row_count,
        None if failure is None else Failure(*failure),
    )
