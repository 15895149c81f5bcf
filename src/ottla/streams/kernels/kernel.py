"""What a stateful step is: rows and old state in, rows and new state out. A kernel does no input or output of its own.

The runner on Spark and the test driver run the same kernels. A kernel is made once and sent to many tasks, so it holds
no state between two calls: all of that is in its stores.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from ottla.streams.state.store import Store


@dataclass(frozen=True)
class StoreSpec:
    """A store that a kernel needs."""

    name: str
    """Unique in the app. The name of the changelog topic is made from it."""
    is_source: bool = False
    """The store is an index of a table's source topic, which serves as its changelog: a kernel only reads it."""


@dataclass(frozen=True)
class FailedRows:
    """Rows for which a function of the user raised an exception. The step went on without them."""

    label: str
    rows: pa.Table
    """The rows as the function got them, with all columns of ours."""
    reasons: Sequence[str]
    """One for each row: the type and the message of the exception."""


@dataclass
class KernelContext:
    """What a kernel may use besides its input, for one batch of one partition."""

    partition: int
    now_ms: int
    """The driver's clock when the batch began. The same for every attempt of the batch."""
    stores: Mapping[str, Store]
    source_times: Mapping[int, int] = field(default_factory=dict)
    """Stream times of source partitions that this batch brought without a row: by the number in the column SOURCE. The
    time is -1 if the source partition has records but none was heard of yet: it holds up windows."""
    idle_times: Mapping[int, int] = field(default_factory=dict)
    """Source partitions that have nothing left to read: the wall-clock milliseconds since their last record."""
    late: list[tuple[str, pa.Table]] = field(default_factory=list)
    """Late rows, with the label of the step: they are counted, and written to the step's topic for late rows."""
    on_error: str = "fail"
    """If a function of the user raises an exception: `fail` raises FunctionFailed, anything else collects the row in
    `failed`, and the runner skips it or writes it to the dead-letter topic."""
    failed: list[FailedRows] = field(default_factory=list)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows that a step ignored, as Kafka Streams does, by the label of the step and the reason, such as `null key`."""

    def store(self, name: str) -> Store:
        return self.stores[name]


class Kernel(Protocol):
    """A stateful step. Instances are sent to tasks with cloudpickle.

    A kernel with an attribute `close_idle_ms` that is not None is also run while its sources are idle.
    """

    stores: Sequence[StoreSpec]

    def process(self, inputs: Sequence[pa.Table], context: KernelContext) -> Sequence[pa.Table]:
        """Process a batch: one table of rows for each input, in order; returns one for each output, ordered by ORDER.

        Called for every batch of the partition, also if no input has rows: time may have passed.
        """


Row = dict[str, Any]
"""A row in Python, for functions of the user and for kernels that work row by row."""
