"""Topics in a notebook: `ottla.read("events").to_pandas()`, without Spark, from any Kafka broker.

The range of offsets is fixed when reading begins; later records are not waited for. The columns are those of Spark's
Kafka connector.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Client
from ottla.client.defaults import BOOTSTRAP, find_default_settings
from ottla.client.fetching import fetch
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.pipeline.decoding import COLUMNS, arrow_schema, decode
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pandas
    import pyarrow

ReadPosition = str | int | datetime | Mapping[int, "str | int | datetime"]
"""earliest, latest, an offset, a time (the first record that is not older), or a mapping of these by partition."""

_ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


def read(
    topic: str | Sequence[str],
    *,
    bootstrap: str | None = None,
    start: ReadPosition = "earliest",
    end: ReadPosition = "latest",
    columns: Sequence[str] | None = None,
    isolation: str = "read_uncommitted",
    settings: Mapping[str, str] | None = None,
) -> "Reading":
    """The records of one topic or several. `settings` are those of a Kafka client, such as security and timeouts.

    Without an address, the cluster is that of the command line: of $OTTLA_BOOTSTRAP, of the profile in use, or
    localhost:9092.
    """
    if isolation not in _ISOLATION:
        raise ValueError(f"isolation={isolation!r}: there are {' and '.join(_ISOLATION)}")
    names = [topic] if isinstance(topic, str) else list(topic)
    client = dict(settings or {})
    if bootstrap is not None:
        client[BOOTSTRAP] = bootstrap
    elif BOOTSTRAP not in client:
        client = find_default_settings() | client
    return Reading(client, names, start, end, tuple(columns or COLUMNS), _ISOLATION[isolation])


class Reading:
    """The result of `read`. Each method reads again, with its own connections."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topics: Sequence[str],
        start: ReadPosition,
        end: ReadPosition,
        columns: Sequence[str],
        isolation: int,
    ) -> None:
        ClientSettings.of(settings)  # raises ValueError now instead of at the first read
        self.schema: pyarrow.Schema = arrow_schema(columns)
        self._settings = settings
        self._topics = topics
        self._start = start
        self._end = end
        self._isolation = isolation

    def ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset and the offset after the last, of every partition, as of now."""
        with closing(Client(self._settings)) as client:
            return self._find_ranges(client)

    def batches(self) -> "Iterator[pyarrow.RecordBatch]":
        """Arrow batches of up to 32,768 rows, one partition after the other."""
        with closing(Client(self._settings)) as client:
            for (topic, partition), (start, end) in self._find_ranges(client).items():
                raw = fetch(client, topic, partition, start, end, isolation=self._isolation)
                yield from decode(raw, topic, partition, start, end, self.schema.names)

    def to_arrow(self) -> "pyarrow.Table":
        import pyarrow

        return pyarrow.Table.from_batches(self.batches(), schema=self.schema)

    def to_pandas(self) -> "pandas.DataFrame":
        return self.to_arrow().to_pandas()

    def _find_ranges(self, client: Client) -> dict[TopicPartition, tuple[int, int]]:
        counts = client.count_partitions(self._topics)
        partitions = [TopicPartition(name, index) for name, count in counts.items() for index in range(count)]
        found = client.list_offsets(dict.fromkeys(partitions, LATEST), self._isolation)
        latest = {where: found[where].offset for where in partitions}
        starts = self._resolve(client, self._start, "earliest", latest)
        ends = self._resolve(client, self._end, "latest", latest)
        for where, start in starts.items():
            if start > latest[where]:
                message = f"{where}: offset {start} was asked for, but the log ends at {latest[where]}"
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        return {where: (starts[where], max(min(ends[where], latest[where]), starts[where])) for where in partitions}

    def _resolve(
        self, client: Client, position: ReadPosition, missing: str, latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The offset of a position in each partition. A partition that the mapping does not name is at `missing`."""
        found: dict[TopicPartition, int] = {}
        wanted: dict[TopicPartition, int] = {}
        for where, end in latest.items():
            one: Any = position.get(where.partition, missing) if isinstance(position, Mapping) else position
            if isinstance(one, datetime):
                wanted[where] = int(one.timestamp() * 1000)
            elif one == "earliest":
                wanted[where] = EARLIEST
            elif one == "latest":
                found[where] = end
            elif isinstance(one, int) and not isinstance(one, bool) and one >= 0:
                found[where] = one
            else:
                raise ValueError(f"{one!r} is not a position in a topic: use earliest, latest, an offset or a datetime")
        for where, answer in client.list_offsets(wanted, self._isolation).items():
            found[where] = answer.offset if answer.offset >= 0 else latest[where]
        return found
