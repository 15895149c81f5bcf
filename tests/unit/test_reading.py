"""`ottla.read`: a topic as a table, from a real broker, as a user of a notebook would call it."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from subprocess import check_output

import pytest

import ottla
from ottla.client.client import Client, find_error_codes
from ottla.client.connection import Unreachable
from ottla.errors import KafkaError
from ottla.records.batch import encode
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from ottla.wire.produce import PartitionData, ProduceRequest, TopicData


@pytest.fixture
def filled(ottla_broker: LocalBroker) -> str:
    """A topic of two partitions with 20 records each, one a second from 1970 on. Returns the address of its broker."""
    ottla_broker.create_topic("events", 2)
    client = Client({"bootstrap.servers": ottla_broker.bootstrap})
    for partition in range(2):
        batch = encode([(b"%d" % n, b"value", (), n * 1000) for n in range(20)])
        data = [PartitionData(partition, memoryview(batch))]
        topics = [TopicData("events", client.find_topic_id("events"), data)]
        assert not list(
            find_error_codes(client.ask_leader("events", partition, ProduceRequest(None, -1, 5000, topics)))
        )
    client.close()
    return ottla_broker.bootstrap


def test_a_topic_is_a_table(filled: str) -> None:
    table = ottla.read("events", bootstrap=filled).to_arrow()
    assert table.num_rows == 40
    assert table.column_names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert sorted(set(table["partition"].to_pylist())) == [0, 1]
    frame = ottla.read(["events"], bootstrap=filled, columns=["offset", "timestamp"]).to_pandas()
    assert list(frame.columns) == ["offset", "timestamp"]
    assert frame["timestamp"].max() == datetime(1970, 1, 1, 0, 0, 19, tzinfo=UTC)


def test_positions_are_offsets_times_and_names(filled: str) -> None:
    # An end beyond the log means the log's end: the call does not wait for new records.
    def ranges(**places: object) -> list[tuple[int, int]]:
        return list(ottla.read("events", bootstrap=filled, **places).ranges().values())  # type: ignore[arg-type]

    assert ranges() == [(0, 20), (0, 20)]
    assert ranges(start=5, end=1000) == [(5, 20), (5, 20)]
    assert ranges(start={1: 7}, end={0: 3}) == [(0, 3), (7, 20)]
    assert ranges(start=datetime.fromtimestamp(4.5, UTC), end=datetime.fromtimestamp(8, UTC)) == [(5, 8), (5, 8)]
    assert ranges(start=datetime.fromtimestamp(99, UTC)) == [(20, 20), (20, 20)]
    assert ranges(start="latest") == [(20, 20), (20, 20)]
    with pytest.raises(ValueError, match="'yesterday' is not a position in a topic"):
        ranges(start="yesterday")
    assert ottla.read("events", bootstrap=filled, start="latest").to_arrow().num_rows == 0


def test_a_topic_that_cannot_be_read_is_one_clear_error(filled: str) -> None:
    with pytest.raises(ValueError, match="there is no column 'vlaue'"):
        ottla.read("events", bootstrap=filled, columns=["vlaue"])
    with pytest.raises(ValueError, match="isolation='snapshot'"):
        ottla.read("events", bootstrap=filled, isolation="snapshot")
    with pytest.raises(ValueError, match="'nowhere' is not host:port"):
        ottla.read("events", bootstrap="nowhere")
    with pytest.raises(KafkaError, match="there is no topic 'evnts'"):
        ottla.read("evnts", bootstrap=filled, settings={"default.api.timeout.ms": "100"}).to_arrow()


def test_reading_can_be_interrupted_and_continued(filled: str) -> None:
    reading = ottla.read("events", bootstrap=filled)
    batches = reading.batches()
    next(batches)
    assert reading.ranges()[TopicPartition("events", 1)] == (0, 20)
    assert sum(batch.num_rows for batch in reading.batches()) == 40


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, ottla; print([name for name in ('pyarrow', 'numpy', 'numba', 'socket') if name in sys.modules])"
    assert check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_without_an_address_the_cluster_is_that_of_the_command_line(
    filled: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A profile in use, a profile that a variable names, and the variable for the address, which is the strongest.
    (tmp_path / "ottla" / "profiles").mkdir(parents=True)
    (tmp_path / "ottla" / "profiles" / "here.properties").write_text(f"bootstrap.servers={filled}\n")
    (tmp_path / "ottla" / "profiles" / "there.properties").write_text("bootstrap.servers=127.0.0.1:1\n")
    (tmp_path / "ottla" / "profile").write_text("here\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)
    assert ottla.read("events").ranges()
    monkeypatch.setenv("OTTLA_PROFILE", "there")
    with pytest.raises(Unreachable):
        ottla.read("events", settings={"default.api.timeout.ms": "100"}).ranges()
    assert ottla.read("events", bootstrap=filled).ranges()
    monkeypatch.setenv("OTTLA_BOOTSTRAP", filled)
    assert ottla.read("events").ranges()
    monkeypatch.setenv("OTTLA_PROFILE", "nobody")
    with pytest.raises(ValueError, match="there is no profile 'nobody'"):
        ottla.read("events")
