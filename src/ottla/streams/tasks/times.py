"""Stream times that a batch knows of besides those of its rows."""

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from ottla.streams.planning.origins import Origins
from ottla.streams.rows import SOURCE, STREAM_TIME
from ottla.streams.tasks.reading import NO_TIME, SourceRows

Partition = tuple[str, int]


def find_source_times(
    sources: Sequence[SourceRows],
    origins: Origins,
    partition: int,
    filled: Collection[Partition],
    numbers: Mapping[str, int],
) -> dict[int, int]:
    """The stream times for `KernelContext.source_times` of one batch.

    `filled` are the source partitions that have records. Those that a task will hear of and has not heard of yet have
    no time: they hold up windows, so that it does not matter which partition happens to be read first. `numbers` are
    those of `number_sources`.
    """
    times = {
        numbers[topic] + number: NO_TIME
        for topic, number in filled
        if topic in origins.others or (topic in origins.own and number == partition)
    }
    for each in sources:
        for number, time in each.source_times.items():
            times[number] = max(time, times.get(number, NO_TIME))
    return times


def reached_times(inputs: Sequence[pa.Table], told: Mapping[int, int]) -> dict[int, int]:
    """The stream time of each source partition that a batch knows of, by its number, for those behind an exchange."""
    reached = {source: time for source, time in told.items() if time != NO_TIME}
    for rows in inputs:
        if not rows.num_rows:
            continue
        latest = rows.select([SOURCE, STREAM_TIME]).group_by(SOURCE).aggregate([(STREAM_TIME, "max")])
        for source, time in zip(latest[SOURCE].to_pylist(), latest[f"{STREAM_TIME}_max"].to_pylist(), strict=True):
            if source is not None:
                reached[source] = max(time, reached.get(source, time))
    return reached
