"""Topics in a notebook: `ottla.read("events").to_pandas()`, without Spark, from any Kafka broker.

What is read is fixed when reading begins: records that come later are not waited for. The columns are those of Spark's
Kafka connector, from the same kernels.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Client
from ottla.client.fetching import fetch
from ottla.client.settings import ClientSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.pipeline.decoding import COLUMNS, arrow_schema, decode
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pandas
    import pyarrow

Place = str | int | datetime | Mapping[int, "str | int | datetime"]
"""earliest, latest, an offset, a time (the first record that is not older), or one of these for each partition."""

_ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


def read(
    topic: str | Sequence[str],
    *,
    bootstrap: str = "localhost:9092",
    start: Place = "earliest",
    end: Place = "latest",
    columns: Sequence[str] | None = None,
    isolation: str = "read_uncommitted",
    settings: Mapping[str, str] | None = None,
) -> "Reading":
    """Records of one topic or several. `settings` are a Kafka client's, by their names: security, time-outs."""
    if isolation not in _ISOLATION:
        raise ValueError(f"isolation={isolation!r}: there are {' and '.join(_ISOLATION)}")
    names = [topic] if isinstance(topic, str) else list(topic)
    client = {**(settings or {}), "bootstrap.servers": bootstrap}
    return Reading(client, names, start, end, tuple(columns or COLUMNS), _ISOLATION[isolation])


class Reading:
    """Made by `read`. Each of its methods reads anew, with connections of its own."""

    def __init__(
        self,
        settings: Mapping[str, str],
        topics: Sequence[str],
        start: Place,
        end: Place,
        columns: Sequence[str],
        isolation: int,
    ) -> None:
        ClientSettings.of(settings)  # what is wrong with them is told now
        self.schema: pyarrow.Schema = arrow_schema(columns)
        self._settings = settings
        self._topics = topics
        self._start = start
        self._end = end
        self._isolation = isolation

    def ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset and the one after the last, of every partition, as of now."""
        with closing(Client(self._settings)) as client:
            return self._ranges(client)

    def batches(self) -> "Iterator[pyarrow.RecordBatch]":
        """Arrow batches, a partition after the other, of some ten thousand rows each."""
        with closing(Client(self._settings)) as client:
            for (topic, partition), (start, end) in self._ranges(client).items():
                raw = fetch(client, topic, partition, start, end, isolation=self._isolation)
                yield from decode(raw, topic, partition, start, end, self.schema.names)

    def to_arrow(self) -> "pyarrow.Table":
        import pyarrow

        return pyarrow.Table.from_batches(self.batches(), schema=self.schema)

    def to_pandas(self) -> "pandas.DataFrame":
        return self.to_arrow().to_pandas()

    def _ranges(self, client: Client) -> dict[TopicPartition, tuple[int, int]]:
        counts = client.count_partitions(self._topics)
        partitions = [TopicPartition(name, index) for name, count in counts.items() for index in range(count)]
        found = client.list_offsets(dict.fromkeys(partitions, LATEST), self._isolation)
        latest = {where: found[where].offset for where in partitions}
        starts = self._resolved(client, self._start, "earliest", latest)
        ends = self._resolved(client, self._end, "latest", latest)
        for where, start in starts.items():
            if start > latest[where]:
                message = f"{where}: offset {start} was asked for, but the log ends at {latest[where]}"
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        return {where: (starts[where], max(min(ends[where], latest[where]), starts[where])) for where in partitions}

    def _resolved(
        self, client: Client, place: Place, missing: str, latest: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Offsets for all partitions, those to be looked up in one question; `missing` is for those not named."""
        found: dict[TopicPartition, int] = {}
        wanted: dict[TopicPartition, int] = {}
        for where, end in latest.items():
            one: Any = place.get(where.partition, missing) if isinstance(place, Mapping) else place
            if isinstance(one, datetime):
                wanted[where] = int(one.timestamp() * 1000)
            elif one == "earliest":
                wanted[where] = EARLIEST
            elif one == "latest":
                found[where] = end
            elif isinstance(one, int) and not isinstance(one, bool) and one >= 0:
                found[where] = one
            else:
                raise ValueError(f"{one!r} is no place in a topic: give earliest, latest, an offset or a datetime")
        for where, answer in client.list_offsets(wanted, self._isolation).items():
            found[where] = answer.offset if answer.offset >= 0 else latest[where]
        return found
