"""Runs kernels over rows that are cut into batches, as a task would: state is applied between two batches."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa

from ottla.streams.kernels.kernel import Kernel, KernelContext
from ottla.streams.kernels.versions import table_codec
from ottla.streams.rows import (
    DELETED,
    HEADERS,
    OFFSET,
    ORDER,
    PARTITION,
    SOURCE,
    STREAM_TIME,
    TIMESTAMP,
    TOPIC,
    stream_schema,
    table_schema,
)
from ottla.streams.state.keys import encode_keys
from ottla.streams.state.store import MemoryReader, Store

Event = dict[str, Any]
"""A row of a test: the user's columns, `at` (its time), `input` (0 if it is missing) and perhaps columns of ours."""


def make_rows(columns: pa.Schema, events: Sequence[Event], *, first_order: int = 0, is_table: bool = False) -> pa.Table:
    """Rows as a task reads them. Stream times are those that the events bring (`stream_time`)."""
    content = []
    for place, event in enumerate(events, first_order):
        row = {name: event.get(name) for name in columns.names}
        row |= {TIMESTAMP: event["at"], STREAM_TIME: event.get("stream_time", event["at"])}
        row |= {SOURCE: event.get("source", 0), HEADERS: event.get("headers"), TOPIC: "in", PARTITION: 0}
        row |= {ORDER: event.get(ORDER, place), OFFSET: place, DELETED: event.get("deleted", False)}
        content.append(row)
    return pa.Table.from_pylist(content, schema=table_schema(columns, ()) if is_table else stream_schema(columns))


def cut(random: Random | None, count: int) -> list[tuple[int, int]]:
    """Ranges of a random cut into batches, some of which are empty; one row per batch without a random."""
    if random is None:
        return [(at, at + 1) for at in range(count)]
    ends = sorted(random.randint(0, count) for _ in range(random.randint(0, max(1, count // 3))))
    return list(zip([0, *ends], [*ends, count], strict=True))


class State:
    """The state of all stores of a task over its batches."""

    def __init__(self) -> None:
        self.readers: dict[str, MemoryReader] = {}

    def context(self, names: Sequence[str], **settings: Any) -> KernelContext:
        stores = {name: Store(self.readers.setdefault(name, MemoryReader())) for name in names}
        return KernelContext(partition=0, now_ms=0, stores=stores, **settings)

    def commit(self, context: KernelContext, source_stores: Sequence[str] = ()) -> None:
        for name, store in context.stores.items():
            assert name not in source_stores or not store.changes, f"{name} is an index of a topic, and was written"
            self.readers[name].apply(store.changes)

    def index(self, name: str, changes: pa.Table, columns: pa.Schema, key: Sequence[str]) -> None:
        """What a state server does with a table's source topic after the batch."""
        values = table_codec(columns, key).encode(changes)
        keys = encode_keys(changes, key)
        deleted = changes.column(DELETED).to_pylist()
        for row_key, value, gone in zip(keys, values, deleted, strict=True):
            if row_key is not None:
                self.readers.setdefault(name, MemoryReader()).apply({row_key: None if gone else value})


def run_alone(
    kernel: Kernel, batches: Sequence[Sequence[pa.Table]], state: State | None = None, **settings: Any
) -> tuple[list[Event], list[KernelContext]]:
    """The rows of a kernel's first output over all batches, and the contexts of the batches."""
    state = state or State()
    rows: list[Event] = []
    contexts = []
    for inputs in batches:
        context = state.context([spec.name for spec in kernel.stores], **settings)
        (output, *_) = kernel.process(inputs, context)
        assert output.column(ORDER).to_pylist() == sorted(output.column(ORDER).to_pylist())
        rows += output.to_pylist()
        state.commit(context)
        contexts.append(context)
    return rows, contexts


def run_chain(
    kernels: Sequence[Kernel],
    batches: Sequence[pa.Table],
    state: State | None = None,
    settings: Sequence[dict[str, Any]] | None = None,
) -> tuple[list[list[Event]], list[KernelContext]]:
    """The rows that the last of several kernels, each of which reads the one before, makes of each batch. `settings`
    has those of each batch's context."""
    state = state or State()
    rows: list[list[Event]] = []
    contexts = []
    for batch, own in zip(batches, settings or [{}] * len(batches), strict=True):
        context = state.context([spec.name for kernel in kernels for spec in kernel.stores], **own)
        for kernel in kernels:
            (batch,) = kernel.process([batch], context)
            assert batch.column(ORDER).to_pylist() == sorted(batch.column(ORDER).to_pylist())
        rows.append(batch.to_pylist())
        state.commit(context)
        contexts.append(context)
    return rows, contexts


def exchange(parcels: Sequence[pa.Table]) -> pa.Table:
    """Rows of several tasks as a task behind an exchange reads them: in the order of the parcels."""
    rows = pa.concat_tables(parcels)
    return rows.set_column(rows.column_names.index(ORDER), ORDER, pa.array(range(rows.num_rows), pa.int64()))


def with_stream_times(events: Sequence[Event]) -> list[Event]:
    """Give each event the stream time of its source partition."""
    reached: dict[int, int] = {}
    found = []
    for event in events:
        source = event.get("source", 0)
        reached[source] = max(event["at"], reached.get(source, 0))
        found.append(event | {"stream_time": reached[source]})
    return found


def times_by_batch(events: Sequence[Event], ranges: Sequence[tuple[int, int]], sources: int) -> list[dict[str, Any]]:
    """What the contexts of batches tell of all source partitions, which are known from the beginning."""
    reached = dict.fromkeys(range(sources), -1)
    found = []
    for start, end in ranges:
        for event in events[start:end]:
            reached[event.get("source", 0)] = event["stream_time"]
        found.append({"source_times": dict(reached)})
    return found
