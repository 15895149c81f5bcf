"""Parcels carry records between tasks: all records arrive, and so do errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.sending import EncodedBatch
from ottla.pipeline.encoding import Encoder
from ottla.records.batch import check_client_batch, decode, seal_client_batch
from pyspark_ottla import parcels
from pyspark_ottla.options import WriteOptions, parse_write_options
from pyspark_ottla.writing import BatchRefused

OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "topic": "orders", "kafka.compression.type": "lz4"}


class Sent(list[EncodedBatch]):
    def send(self, encoded: EncodedBatch) -> None:
        self.append(encoded)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Collects what would be sent to a broker, to a topic of three partitions."""
    found = Sent()

    @contextmanager
    def open_sender(*_: Any) -> Iterator[Sent]:
        yield found

    def encoder(_: Any, options: WriteOptions) -> Encoder:
        return Encoder(lambda topic: 3, Random(1), topic=options.topic, codec=options.records.codec, batch_bytes=2000)

    monkeypatch.setattr(parcels, "open_sender", open_sender)
    monkeypatch.setattr(parcels, "create_encoder", encoder)
    monkeypatch.setattr(parcels, "freeze_loaded_modules", lambda: None)
    return found


def carry(rows: pa.RecordBatch) -> int:
    options, client = parse_write_options(OPTIONS), None
    lots = list(parcels.pack_rows(client, options, iter([rows, rows])))  # type: ignore[arg-type]
    return parcels.write_parcels(client, options, iter(lots), None)  # type: ignore[arg-type]


def test_every_record_arrives_in_its_partition(sent: Sent) -> None:
    keys = [b"%d" % number for number in range(200)]
    times = [1_000_000 - number for number in range(200)]
    assert carry(pa.record_batch({"key": keys, "value": keys, "timestamp": times})) == 400
    assert {batch.topic for batch in sent} == {"orders"}
    found: dict[int, list[bytes | None]] = {}
    for each in sent:
        seal_client_batch(each.data, each.count, each.timestamp, codec=each.codec, timestamp_max=each.timestamp_max)
        check_client_batch(each.data)
        records = decode(each.data)
        assert all(record.timestamp == 1_000_000 - int(record.key or b"") for record in records)
        assert len(records) == each.count
        found.setdefault(each.partition, []).extend(record.key for record in records)
    assert sorted(found) == [0, 1, 2]
    assert sorted(key for part in found.values() for key in part if key is not None) == sorted(keys * 2)
    for part in found.values():  # each key is in one partition, in the order of the rows
        assert part[: len(part) // 2] == part[len(part) // 2 :]


def test_an_error_of_packing_is_raised_by_the_writing_task(sent: Sent) -> None:
    rows = pa.record_batch({"value": [b"fine", b"x" * 2_000_000]})
    with pytest.raises(BatchRefused, match="MESSAGE_TOO_LARGE: row 1 is larger than"):
        carry(rows)
