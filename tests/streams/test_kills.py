"""Parts of an app that counts are killed in the middle of its work: every record counts exactly once."""

from collections import Counter
from pathlib import Path

import pytest

from ottla.testing import LocalBroker, LocalCluster
from tests.samples import choose_sample, sample_size
from tests.spark.topics import send
from tests.streams.apps import read_records, read_table
from tests.streams.rounds import (
    BROKER,
    COPY,
    DAEMON,
    DRIVER,
    PARTITIONS,
    PAUSE,
    STATE_DIRECTORY,
    STATE_SERVER,
    WORKER,
    Model,
    choose_kinds,
    query_all,
    run_rounds,
)
from tests.streams.striking import FIRST_WORKER, POINTS, SECOND_WORKER

APP, SOURCE, SINK, STORE = "counter", "numbered", "totals", "per-bucket"
ROWS = sample_size(160, 400)
"""Several batches of each of them, at least, and no fewer than eleven counts."""

KINDS = (DRIVER, WORKER, DAEMON, STATE_SERVER, BROKER, PAUSE, STATE_DIRECTORY, COPY, *POINTS)


class Counts(Model):
    """Numbers that are counted by their remainder."""

    file = Path(__file__).with_name("crashing.py")
    app, sources, exchanges, sinks = APP, (SOURCE,), (f"{APP}-{STORE}-repartition",), (SINK,)
    sent = 0

    def send(self) -> None:
        numbers = range(self.sent, self.sent + ROWS)
        send(self.broker, SOURCE, [{"value": f"{n}", "partition": n % PARTITIONS} for n in numbers])
        self.sent += ROWS

    @property
    def expected(self) -> Counter[str]:
        return Counter(str(number % 11) for number in range(self.sent))

    def is_reached(self) -> bool:
        return read_table(self.broker, SINK) == {key: {"count": count} for key, count in self.expected.items()}

    def answers_fit(self, address: str) -> bool:
        return {row["bucket"]: row["count"] for row in query_all(address, STORE)} == self.expected

    def check(self) -> None:
        """The output never counts backwards, and ends, like the changelog, with the counts of all records."""
        highest: dict[bytes, int] = {}
        for record in read_records(self.broker, SINK):
            count = int(record["value"].split(b":")[1].strip(b"}"))
            assert count > highest.get(record["key"], 0), "a batch was counted twice or not at all"
            highest[record["key"]] = count
        assert {key.decode(): count for key, count in highest.items()} == self.expected
        kept = read_table(self.broker, f"{APP}-{STORE}-changelog")
        assert {key: value["count"] for key, value in kept.items()} == self.expected


@pytest.mark.always
@pytest.mark.ottla(process=True)
def test_whatever_is_killed_every_record_counts_once(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    """kill -9 of a state server, a Python worker, or the driver with all its children, at a random moment; of a Python
    worker between the Column steps and the transaction of a batch."""
    run_rounds(
        Counts(ottla_broker, seed),
        tmp_path,
        choose_sample((STATE_SERVER, WORKER, DAEMON, DRIVER, FIRST_WORKER, SECOND_WORKER), 1),
        seed,
    )


@pytest.mark.long
@pytest.mark.ottla(process=True)
def test_many_kills_of_everything_count_once(ottla_broker: LocalBroker, tmp_path: Path, seed: int) -> None:
    """Also of the broker and of Python's daemon; a transaction that takes longer than transaction.timeout.ms, a state
    directory that is deleted, and a second copy of the app. One model for all rounds."""
    run_rounds(Counts(ottla_broker, seed), tmp_path, choose_kinds(KINDS, seed), seed)


@pytest.mark.long
@pytest.mark.ottla(process=True)
def test_leaders_that_are_killed_count_once(ottla_cluster: LocalCluster, tmp_path: Path, seed: int) -> None:
    """Three brokers, of which the leader of an output's partition is killed, four times."""
    run_rounds(Counts(ottla_cluster, seed), tmp_path, (BROKER,) * 4, seed)
