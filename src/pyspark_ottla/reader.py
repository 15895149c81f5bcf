"""`spark.read.format("ottla")`: all records between two boundaries, which are resolved when the query is planned."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.client.client import EARLIEST, LATEST, Client, get_shared_client
from pyspark_ottla.boundaries import Boundary, Offsets, resolve_boundary
from pyspark_ottla.garbage import freeze_loaded_modules
from pyspark_ottla.losses import report_loss
from pyspark_ottla.options import ReadOptions
from pyspark_ottla.planning import OffsetRange, divide_ranges, list_ranges
from pyspark_ottla.selecting import check_dead_letters, find_starting_offsets, select_partitions
from pyspark_ottla.shapes import Shape

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class TaskRange(InputPartition):
    """The offsets that one task reads, as Spark sends them to it."""

    def __init__(self, range_: OffsetRange) -> None:
        super().__init__(tuple(range_))
        self.range = range_


def read_range(options: ReadOptions, shape: Shape, partition: InputPartition) -> "Iterator[RecordBatch]":
    """The rows of a task's range. Runs in a worker."""
    from pyspark_ottla.row_making import RowMaker

    if not isinstance(partition, TaskRange):
        return iter(())  # Spark's own partition, of a read without ranges
    maker = RowMaker(shape, options.kafka)
    return maker.rows(_read_columns(options, maker.columns, partition.range))


def _read_columns(options: ReadOptions, columns: tuple[str, ...], range_: OffsetRange) -> "Iterator[RecordBatch]":
    """The records of a range as Arrow columns. Records that are gone are reported, see `report_loss`."""
    from ottla.client.fetching import DataLoss, fetch
    from ottla.pipeline.decoding import Decoder  # machine code, which only workers need

    where, start, end = range_
    client = get_shared_client(options.kafka)  # Spark reuses worker processes, and so their connections
    decoder = Decoder(*where, start, end, columns)
    freeze_loaded_modules()
    while start < end:
        try:
            for raw in fetch(client, *where, start, end, isolation=options.isolation):
                yield from decoder.feed(raw)
            break
        except DataLoss as loss:
            what = f"{where}: records from offset {loss.wanted} on are missing (it has {loss.first} to {loss.end})"
            report_loss(what, options.fail_on_data_loss)
            start = loss.first if loss.wanted < loss.first else end
            yield from decoder.flush()
            decoder = Decoder(*where, start, end, columns)  # a batch may hold records that are deleted, before `start`
    yield from decoder.flush()


class OttlaReader(DataSourceReader):
    def __init__(self, options: ReadOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape

    def partitions(self) -> list[TaskRange]:
        options = self._options
        client = Client(options.kafka)
        try:
            check_dead_letters(self._shape.dead_letter_topic, client)
            partitions = select_partitions(options.selection, client)
            start = find_starting_offsets(options, client, partitions)
            end = resolve_boundary(options.ending, client, partitions, isolation=options.isolation)
            ranges = list_ranges(self._check_start(client, start), end)
            return [TaskRange(each) for each in divide_ranges(ranges, options.min_partitions, options.max_records)]
        finally:
            client.close()

    def _check_start(self, client: Client, start: Offsets) -> Offsets:
        """Report offsets that do not exist any more here, before a task fails at them."""
        earliest = resolve_boundary(Boundary("earliest", EARLIEST), client, start)
        latest = resolve_boundary(Boundary("latest", LATEST), client, start)
        found = dict(start)
        for where, offset in start.items():
            if not earliest[where] <= offset <= latest[where]:
                what = f"{where}: offset {offset} is not there any more, only {earliest[where]} to {latest[where]}"
                report_loss(what, self._options.fail_on_data_loss)
                found[where] = earliest[where] if offset < earliest[where] else latest[where]
        return found

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        return read_range(self._options, self._shape, partition)
