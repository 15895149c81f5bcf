"""`spark.readStream.format("ottla")`: decides where each micro-batch ends and what its tasks read.

Spark keeps the offsets in the query's checkpoint. One reader lives in the driver's Python process for as long as the
query runs. Partitions that appear meanwhile are read from their beginning.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.client.backoff import Backoff
from ottla.client.client import EARLIEST, LATEST, Client
from ottla.client.connection import Unreachable
from ottla.client.groups import CommittedOffset, commit_offsets
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition
from pyspark_ottla.boundaries import Offsets, offsets_from_json, offsets_to_json
from pyspark_ottla.losses import report_loss
from pyspark_ottla.options import ReadOptions
from pyspark_ottla.planning import divide_ranges, limit_offsets, list_ranges
from pyspark_ottla.reader import TaskRange, read_range
from pyspark_ottla.selecting import check_dead_letters, find_starting_offsets, select_partitions
from pyspark_ottla.shapes import Shape

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    Checkpoint = Mapping[str, Mapping[str, int]]

logger = logging.getLogger("ottla.spark")


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._client = Client(options.kafka)
        self._latest: Offsets = {}
        self._target: Offsets | None = None
        """The offsets at which a query with the trigger AvailableNow ends."""
        self._delay: Backoff | None = None
        """How long a batch may still wait for minOffsetsPerTrigger."""
        self._committed: Offsets | None = None
        """The offsets that the group has, as far as this reader knows: those where a new query begins are none that a
        batch has reached."""

    # Offsets

    def initialOffset(self) -> dict[str, dict[str, int]]:
        check_dead_letters(self._shape.dead_letter_topic, self._client)
        partitions = select_partitions(self._options.selection, self._client)
        self._committed = find_starting_offsets(self._options, self._client, partitions)
        return offsets_to_json(self._committed)

    def latestOffset(self, start: "Checkpoint", limit: ReadLimit) -> dict[str, dict[str, int]]:
        """Where the next batch may end. Spark asks when the batch that ends at `start` is done, and also when there is
        no next one, so this is where the group gets its offsets."""
        self._latest = self._find_ends()
        self._commit_to_group(offsets_from_json(start))
        begin = self._begin(offsets_from_json(start), self._latest)
        end = self._target if self._target is not None else self._latest
        end = {where: max(end.get(where, 0), begin[where]) for where in begin}
        if self._target is None and self._must_wait(begin, end, limit):
            return offsets_to_json(offsets_from_json(start))
        if isinstance(limit, ReadMaxRows):
            end = limit_offsets(begin, end, limit.max_rows)
        return offsets_to_json(end)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._find_ends()

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """Spark shows it in the query's progress, so that its lag can be seen."""
        return offsets_to_json(self._latest) if self._latest else None

    def _find_ends(self) -> Offsets:
        partitions = select_partitions(self._options.selection, self._client)
        return self._ask(partitions, LATEST)

    def _ask(self, partitions: list[TopicPartition], spec: int) -> Offsets:
        if not partitions:
            return {}
        found = self._client.list_offsets(dict.fromkeys(partitions, spec), self._options.isolation)
        return {where: answer.offset for where, answer in found.items()}

    def _begin(self, start: Offsets, known: Mapping[TopicPartition, int]) -> Offsets:
        """Where the next batch begins in each partition. Reports partitions and records that are gone."""
        fail = self._options.fail_on_data_loss
        gone = [where for where in start if where not in known]
        if gone:
            report_loss(f"{', '.join(map(str, gone[:5]))}: the partitions are gone, and with them their records", fail)
        begin = {where: offset for where, offset in start.items() if where in known}
        for where, offset in begin.items():
            if known[where] < offset:
                what = f"{where}: the query has read up to offset {offset}, and now it ends at {known[where]}"
                report_loss(what, fail)
                begin[where] = known[where]
        return {**begin, **self._find_beginning([where for where in known if where not in start])}

    def _find_beginning(self, new: list[TopicPartition]) -> Offsets:
        found = self._ask(new, EARLIEST)
        for where, offset in found.items():
            if offset > 0:
                what = f"{where}: a new partition begins at offset {offset}; records before it were never seen"
                report_loss(what, self._options.fail_on_data_loss)
        return found

    def _must_wait(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """Whether the batch is smaller than minOffsetsPerTrigger and may wait. The first batch does not wait."""
        least = self._options.min_offsets
        if least is None or isinstance(limit, ReadAllAvailable):
            return False
        available = sum(end[where] - begin[where] for where in begin)
        if self._delay is not None and self._delay.left_s > 0 and available < least:
            return True
        self._delay = self._client.start_backoff(self._options.max_delay_s)
        return False

    # Tasks

    def partitions(self, start: "Checkpoint", end: "Checkpoint") -> list[TaskRange]:
        options = self._options
        until = offsets_from_json(end)
        begin = offsets_from_json(start)
        begin.update(self._find_beginning([where for where in sorted(until) if where not in begin]))
        for where in until:
            if until[where] < begin[where]:
                what = f"{where}: the query has read up to offset {begin[where]}, and this batch ends at {until[where]}"
                report_loss(what, options.fail_on_data_loss)
        ranges = list_ranges(begin, until)
        return [TaskRange(each) for each in divide_ranges(ranges, options.min_partitions, options.max_records)]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        return read_range(self._options, self._shape, partition)

    # Progress

    def commit(self, end: "Checkpoint") -> None:
        """Spark calls this when the next batch is planned; `latestOffset` has committed the offsets before."""
        self._commit_to_group(offsets_from_json(end))

    def _commit_to_group(self, reached: Offsets) -> None:
        """Commit the offsets of a finished batch to the query's consumer group.

        An error is only logged, because the query itself depends on its checkpoint alone.
        """
        if not self._options.group or reached == self._committed:
            return
        self._committed = reached
        try:
            committed = {where: CommittedOffset(offset) for where, offset in reached.items()}
            commit_offsets(self._client, self._options.group, committed)
        except (KafkaError, Unreachable) as error:
            logger.warning("the offsets of group %s were not committed: %s", self._options.group, error)

    def stop(self) -> None:
        self._client.close()
