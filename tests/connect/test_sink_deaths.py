"""Sinks that keep their positions in the target, without Spark: they die around the target's commit, and no record that
was refused is lost."""

import gc
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from deltalake import DeltaTable

from ottla.client.transactions import ProducerIdentity
from ottla.connect.connector import Sink
from ottla.connect.connectors.delta.delta_sink import DeltaLakeSink
from ottla.connect.connectors.files.directory_sink import DirectorySink
from ottla.connect.connectors.files.file_sink import FileStreamSink
from ottla.connect.connectors.jdbc.sink import JdbcSink
from ottla.connect.connectors.s3.s3_sink import S3Sink
from ottla.connect.running import sink_tasks
from ottla.connect.running.writing import TransactionWriter
from ottla.testing import LocalBroker
from tests.connect.jdbc_databases import Database
from tests.connect.local_runs import Died, LocalJobs, count_steps, run_locally
from tests.connect.runs import count_records, read_group, read_records
from tests.patience import PATIENCE_S
from tests.s3_server import ACCESS, REGION, make_bucket, read_objects, s3_server
from tests.spark.topics import send

SCHEMA: Final = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}
BROKEN: Final = b"{broken"


def to_json(number: int) -> bytes:
    return json.dumps({"schema": SCHEMA, "payload": {"id": number}}).encode()


VALUES: Final = (to_json(0), BROKEN, None, to_json(1), to_json(1), to_json(2))
"""One that the converter refuses, one without a value, and one with a key that is there."""


class DyingBefore(TransactionWriter):
    def commit(self) -> ProducerIdentity:
        raise Died


class DyingAfter(TransactionWriter):
    def commit(self) -> ProducerIdentity:
        super().commit()
        raise Died


def die(*_: object) -> None:
    raise Died


@dataclass(frozen=True)
class Target:
    """A sink for a test, what it refuses of the records above, and how to read the ids that it has written."""

    kind: type[Sink]
    config: Mapping[str, str]
    refused: Sequence[bytes | None]
    ids: Sequence[int]
    read: Callable[[], list[int]]


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    with s3_server() as address:
        yield address


def make_jdbc(request: pytest.FixtureRequest, path: Path) -> Target:
    database = Database(f"jdbc:sqlite:{path / 'rows.db'}")
    config = {**database.config, "auto.create": "true", "pk.mode": "record_value", "table.name.format": "rows"}
    return Target(
        JdbcSink,
        config,
        (BROKEN, None, to_json(1)),
        (0, 1, 2),
        lambda: [each[0] for each in database.query("SELECT id FROM rows")] if database.query(TABLES) else [],
    )


TABLES: Final = "SELECT name FROM sqlite_master WHERE name = 'rows'"


def make_s3(request: pytest.FixtureRequest, path: Path) -> Target:
    address: str = request.getfixturevalue("s3_address")
    bucket = re.sub("[^a-z0-9]", "-", path.name)
    make_bucket(address, bucket)
    config = {
        "s3.bucket.name": bucket,
        "s3.region": REGION,
        "store.url": address,
        "flush.size": "1",
        "format.class": "JsonFormat",
        "behavior.on.null.values": "fail",
        **ACCESS,
    }
    return Target(
        S3Sink,
        config,
        (BROKEN, None),
        (0, 1, 1, 2),
        lambda: [json.loads(data)["id"] for data in read_objects(address, bucket).values()],
    )


def make_delta(request: pytest.FixtureRequest, path: Path) -> Target:
    table = str(path / "table")
    config = {"table.uri": table, "flush.size": "1", "behavior.on.null.values": "fail"}
    return Target(
        DeltaLakeSink,
        config,
        (BROKEN, None),
        (0, 1, 1, 2),
        lambda: DeltaTable(table).to_pyarrow_table()["id"].to_pylist() if DeltaTable.is_deltatable(table) else [],
    )


def make_directory(request: pytest.FixtureRequest, path: Path) -> Target:
    return Target(
        DirectorySink,
        {"directory": str(path / "out"), "format": "json", "flush.size": "1"},
        (BROKEN,),
        (0, 1, 1, 2),
        lambda: [json.loads(file.read_text())["id"] for file in sorted((path / "out").rglob("*.json"))],
    )


def make_file(request: pytest.FixtureRequest, path: Path) -> Target:
    file = path / "out.txt"
    return Target(
        FileStreamSink,
        {"file": str(file)},
        (BROKEN,),
        (0, 1, 1, 2),
        lambda: [int(each) for each in re.findall("id=(.)", file.read_text())] if file.exists() else [],
    )


@pytest.fixture(params=[make_jdbc, make_s3, make_delta, make_directory, make_file])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    yield request.param(request, tmp_path)
    if request.param is make_s3:  # a client that dies leaves its socket to the garbage collector, which complains
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


class Case:
    """A topic of its own, and runs of one connector that reads it, each as if the worker was started again."""

    def __init__(self, broker: LocalBroker, target: Target, name: str, values: Sequence[bytes | None] = VALUES) -> None:
        self.name = name
        self.letters = f"{name}-letters"
        self._broker = broker
        self._target = target
        broker.create_topic(name, partitions=1)
        send(broker, name, [{"value": value} for value in values])

    def run(self, tolerance: str = "all") -> str | None:
        """Rounds until everything is read, or the task has failed: then why."""
        given = {
            "name": self.name,
            "topics": self.name,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "errors.tolerance": tolerance,
            "errors.deadletterqueue.topic.name": self.letters,
            "errors.deadletterqueue.topic.replication.factor": "1",
            **self._target.config,
        }
        return run_locally(self._broker, self._target.kind, given)

    def count_letters(self) -> dict[bytes | None, int]:
        """The dead letters by their values."""
        if not count_records(self._broker, self.letters):
            return {}
        return Counter(each["value"] for each in read_records(self._broker, self.letters))


@pytest.fixture
def case(broker: LocalBroker, target: Target, tmp_path: Path) -> Case:
    return Case(broker, target, tmp_path.name)


def test_no_dead_letter_is_lost_after_the_commit_of_the_target(
    case: Case, target: Target, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies when the target has its position and the group has no offset."""
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(sink_tasks, "commit_offsets_in_transaction", die)
        case.run()
    assert target.read()
    assert read_group(broker, case.name) == {}
    assert case.run() is None
    assert sorted(target.read()) == list(target.ids)
    assert case.count_letters() == dict.fromkeys(target.refused, 1)


@pytest.mark.parametrize("target", [make_jdbc, make_s3, make_file], indirect=True)
@pytest.mark.parametrize("writer", [DyingBefore, DyingAfter])
def test_a_death_around_the_commit_of_the_dead_letters(
    case: Case, target: Target, writer: type[TransactionWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it the target has nothing either. After it the target has nothing yet: what was a dead letter is one
    again."""
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(sink_tasks, "TransactionWriter", writer)
        case.run()
    assert target.read() == []
    before = case.count_letters()
    assert BROKEN in before if writer is DyingAfter else not before
    assert case.run() is None
    assert sorted(target.read()) == list(target.ids)
    assert case.count_letters() == Counter(before) + Counter(target.refused)


@pytest.mark.parametrize("target", [make_jdbc, make_s3, make_delta], indirect=True)
def test_without_tolerance_no_record_is_skipped(broker: LocalBroker, target: Target, tmp_path: Path) -> None:
    """Not even if the connector is started again and again."""
    values = [value for value in VALUES if value != BROKEN]
    case = Case(broker, target, tmp_path.name, values)
    refused = [value for value in target.refused if value != BROKEN]
    for _ in range(2):
        failure = case.run(tolerance="none")
        assert failure is not None
        assert f"a record of {case.name}-0 at offset 1 failed" in failure
    assert case.run() is None
    assert sorted(target.read()) == list(target.ids)
    assert case.count_letters() == dict.fromkeys(refused, 1)


@pytest.mark.parametrize("target", [make_file], indirect=True)
def test_a_task_goes_on_while_there_are_whole_batches(
    case: Case, target: Target, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of two: the first order writes all six records, and leaves no dead letter out or behind."""
    monkeypatch.setattr(sink_tasks, "MAX_ROWS", 2)
    monkeypatch.setattr(sink_tasks, "ROUND_S", PATIENCE_S)
    with count_steps([(LocalJobs, "run")]) as steps:
        assert case.run() is None
    assert steps.count == 2
    assert target.read() == list(target.ids)
    assert case.count_letters() == dict.fromkeys(target.refused, 1)
    assert [*read_group(broker, case.name).values()] == [len(VALUES)]
