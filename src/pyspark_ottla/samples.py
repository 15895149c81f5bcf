"""Samples the newest records of each partition, to infer a schema from them."""

from contextlib import closing

from ottla.client.client import EARLIEST, LATEST, Client
from pyspark_ottla.options import ISOLATIONS, Selection
from pyspark_ottla.selecting import select_partitions

SAMPLE_ROWS = 1000


def sample_newest(kafka: dict[str, str], selection: Selection, column: str) -> list[bytes]:
    """The newest values of a column (key or value) that are not null."""
    from ottla.client.fetching import fetch
    from ottla.pipeline.decoding import decode  # machine code, which few drivers need

    isolation = ISOLATIONS.get(kafka.get("isolation.level", "").lower(), 0)
    found: list[bytes] = []
    with closing(Client(kafka)) as client:
        partitions = select_partitions(selection, client)
        first = client.list_offsets(dict.fromkeys(partitions, EARLIEST), isolation)
        end = client.list_offsets(dict.fromkeys(partitions, LATEST), isolation)
        share = -(-SAMPLE_ROWS // max(len(partitions), 1))
        for where in partitions:
            stop = end[where].offset
            start = max(first[where].offset, stop - share)
            raw = fetch(client, *where, start, stop, isolation=isolation)
            for batch in decode(raw, *where, start, stop, [column]):
                found += [value for value in batch.column(0).to_pylist() if value is not None]
    return found
