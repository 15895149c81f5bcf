"""The physical plan of an app: subtopologies that are connected by topics only.

A *subtopology* is what one task does with one partition: it reads the partition of each of its source topics, has
Spark compute columns if there is exactly one source, runs its steps, and writes to sinks and changelogs, all in one
transaction together with the offsets it has read. Tasks of different partitions and subtopologies have nothing in
common, so each of them can fail, be repeated or run elsewhere alone. An exchange is a repartition topic between two
subtopologies, as in Kafka Streams.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from ottla.streams.formats import RecordFormat
from ottla.streams.kernels.kernel import Kernel, StoreSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS, PARCELS = "records", "parcels"
"""What a topic holds: records of the user, or rows of many keys as one Arrow batch in each record, as between two
subtopologies."""


@dataclass(frozen=True)
class SourcePlan:
    """A topic that a subtopology reads."""

    topic: str
    columns: pa.Schema
    key: tuple[str, ...]
    is_table: bool = False
    holds: str = RECORDS
    key_format: RecordFormat = field(default_factory=RecordFormat)
    value_format: RecordFormat = field(default_factory=RecordFormat)
    time: str | None = None
    start: str = "earliest"
    label: str = ""
    has_old: bool = False
    """With PARCELS of a table: its changes come with old values."""


@dataclass(frozen=True)
class StepPlan:
    """A step of a subtopology. Inputs are outputs of sources (numbered first, in order) and of earlier steps."""

    label: str
    kernel: Kernel
    inputs: tuple[int, ...]
    outputs: int = 1
    """How many tables the kernel returns. They are numbered after those of everything before."""
    late_topic: str | None = None
    late_columns: tuple[str, ...] | None = None
    key: tuple[str, ...] = ()
    """The key of late rows."""


@dataclass(frozen=True)
class SinkPlan:
    """Writes one of the outputs to a topic."""

    input: int
    columns: pa.Schema
    key: tuple[str, ...]
    topic: str | None
    topic_column: str | None = None
    is_table: bool = False
    holds: str = RECORDS
    key_format: RecordFormat = field(default_factory=RecordFormat)
    value_format: RecordFormat = field(default_factory=RecordFormat)
    label: str = ""
    value_columns: tuple[str, ...] | None = None
    """The columns that make the value; None for all that are not of the key."""
    has_old: bool = False
    partition_by: tuple[str, ...] | None = None
    """With PARCELS: the columns whose canonical bytes choose the partition; None for the task's own partition."""
    tells_times: bool = False
    """With PARCELS: some reader closes windows, so every partition must hear the stream times of the sources."""


@dataclass(frozen=True)
class StorePlan:
    """A store: where its changelog is, and how to read its keys and values."""

    spec: StoreSpec
    changelog: str
    """The changelog topic. If the store is an index of a source table, the source topic."""
    key_columns: pa.Schema
    value_columns: pa.Schema
    kind: str = "key-value"
    """key-value, window or session: how keys are made (see `state/keys.py`)."""
    is_queryable: bool = True
    key_format: RecordFormat | None = None
    value_format: RecordFormat | None = None
    """Of a source table: the formats of its topic. Otherwise keys and values are in the form of `state/`."""
    time: str | None = None
    """Of a source table: the column with the event time; None for the record's timestamp."""
    window_ms: int | None = None
    """Of a window store: the size of its windows."""
    content: str = ""
    """What is in the store besides what its columns say, such as which windows: with another one, what is there already
    would be taken for something else."""
    functions: tuple[tuple[str, str], ...] = ()
    """Of a store of aggregates: its value columns, each with the function that computes it."""


@dataclass(frozen=True)
class SubtopologyPlan:
    name: str
    """Stable over restarts and over changes of stateless steps: made from the names of stores and topics."""
    sources: tuple[SourcePlan, ...]
    column_steps: tuple[Callable[["DataFrame"], "DataFrame"], ...]
    """Computed by Spark, in this order, on the rows of the only source. Empty if there are several sources."""
    columns_after: pa.Schema | None
    """The schema after `column_steps`, ours included; None if there are none."""
    steps: tuple[StepPlan, ...]
    sinks: tuple[SinkPlan, ...]
    stores: tuple[StorePlan, ...]
    group: str
    """The consumer group of its offsets: the name of the app, unless another subtopology reads the same topic."""
    closes_windows: bool = False
    """Some step waits until the sources have passed a time."""
    only_newest: bool = False
    """The steps take no notice of a row if a later row of the same batch has its key."""
    column_labels: tuple[str, ...] = ()
    """The labels of `column_steps`, for messages."""

    def transactional_id(self, app: str, partition: int) -> str:
        """Of the task of this partition: whoever uses it fences the task's older owners."""
        return f"{app}-{self.name}-{partition}"


@dataclass(frozen=True)
class InternalTopic:
    """A topic that the app creates itself."""

    name: str
    partitions_like: tuple[str, ...]
    """As many partitions as the largest of these topics has; `partitions` wins over it."""
    partitions: int | None = None
    is_compacted: bool = False
    is_purged: bool = False
    """Records are deleted once they were read, as of a repartition topic."""


@dataclass(frozen=True)
class AppPlan:
    app: str
    subtopologies: tuple[SubtopologyPlan, ...]
    internal_topics: tuple[InternalTopic, ...]

    @property
    def stores(self) -> dict[str, StorePlan]:
        return {store.spec.name: store for each in self.subtopologies for store in each.stores}
