"""`spark.read.format("ottla")`: everything between two boundaries, as it is when the query is planned."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.client.client import EARLIEST, LATEST, Client, get_shared_client
from pyspark_ottla.boundaries import Boundary, Offsets, resolved
from pyspark_ottla.garbage import keep_what_is_loaded
from pyspark_ottla.losses import report_loss
from pyspark_ottla.options import ReadOptions
from pyspark_ottla.planning import OffsetRange, divided, ranges_between
from pyspark_ottla.selecting import check_dead_letters, selected_partitions, starting_offsets
from pyspark_ottla.shapes import Shape

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class TaskRange(InputPartition):
    """What one task reads."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(tuple(range_))
        self.range = range_


def read_range(options: ReadOptions, shape: Shape, partition: InputPartition) -> "Iterator[RecordBatch]":
    """The rows of one task's range, in a worker."""
    from pyspark_ottla.row_making import RowMaker

    if not isinstance(partition, TaskRange):
        return iter(())  # Spark's own, where there is nothing to read
    maker = RowMaker(shape, options.kafka)
    return maker.rows(_read_columns(options, maker.columns, partition.range))


def _read_columns(options: ReadOptions, columns: tuple[str, ...], range_: OffsetRange) -> "Iterator[RecordBatch]":
    """What is gone at the range's beginning is told, or passed over."""
    from ottla.client.fetching import DataLoss, fetch
    from ottla.pipeline.decoding import Decoder  # machine code, which only workers need

    where, start, end = range_
    client = get_shared_client(options.kafka)  # workers are used again, and so are their connections
    decoder = Decoder(*where, start, end, columns)
    keep_what_is_loaded()
    while start < end:
        try:
            for raw in fetch(client, *where, start, end, isolation=options.isolation):
                yield from decoder.feed(raw)
            break
        except DataLoss as loss:
            what = f"{where}: records from offset {loss.wanted} on are missing (it has {loss.first} to {loss.end})"
            report_loss(what, options.fail_on_data_loss)
            start = loss.first if loss.wanted < loss.first else end
            yield from decoder.rest()
            decoder = Decoder(*where, start, end, columns)  # a batch may hold records that are deleted, before `start`
    yield from decoder.rest()


class OttlaReader(DataSourceReader):
    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape

    def partitions(self) -> list[TaskRange]:
        options = self._options
        client = Client(options.kafka)
        try:
            check_dead_letters(self._shape.dead_letter_topic, client)
            partitions = selected_partitions(options.selection, client)
            start = starting_offsets(options, client, partitions)
            end = resolved(options.ending, client, partitions, isolation=options.isolation)
            ranges = ranges_between(self._checked(client, start), end)
            return [TaskRange(each) for each in divided(ranges, options.min_partitions, options.max_records)]
        finally:
            client.close()

    def _checked(self, client: Client, start: Offsets) -> Offsets:
        """Offsets that were named and are gone are found before a task stumbles over them."""
        earliest = resolved(Boundary("earliest", EARLIEST), client, start)
        latest = resolved(Boundary("latest", LATEST), client, start)
        found = dict(start)
        for where, offset in start.items():
            if not earliest[where] <= offset <= latest[where]:
                what = f"{where}: offset {offset} is not there any more, only {earliest[where]} to {latest[where]}"
                report_loss(what, self._options.fail_on_data_loss)
                found[where] = earliest[where] if offset < earliest[where] else latest[where]
        return found

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        return read_range(self._options, self._shape, partition)
