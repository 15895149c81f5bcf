"""The simulation finds bugs: each of these brokers has one, and a few seeds are enough to find it."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.cluster.embedded import EmbeddedLog
from ottla.coordinators.runtime.loading import StoredBatch
from ottla.replication.partition import Partition
from ottla.storage.flush import Flush
from ottla.storage.log import Log
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import Segment
from tests.simulation.process import ProcessDisk
from tests.simulation.scenario import run

SEEDS_MAX = 150
FIRST_SEEDS = {
    "commits before the fsync": 26,
    "takes a flush for more than it was": 26,
    "never flushes": 10,
    "syncs no names": 2,
    "forgets what its groups stored": 1,
    "lets consumers read what is not committed": 13,
}
"""Where the search begins: seeds before these find nothing, or take long."""

Replacement = Callable[..., Any]


def commit_before_the_flush(partition: Partition) -> None:
    partition.high_watermark.advance(partition.log.end_offset)


def count_later_records_as_flushed(log: Log, flush: Flush) -> None:
    log.recovery_point = log.end_offset


def read_everything(partition: Partition, offset: int, max_bytes: int, **options: Any) -> Any:
    answer, log = REAL_READ(partition, offset, max_bytes, **options), partition.log
    if offset < log.end_offset:
        found = log.read(offset, max_bytes, up_to=log.end_offset, at_least_one=options["at_least_one"])
        answer.records = found.slice if found is not None else None
    return answer


def do_nothing(*args: Any) -> None:
    return None


REAL_READ = Partition.read

MUTANTS: dict[str, tuple[type, str, Replacement, str]] = {
    "commits before the fsync": (Partition, "_move_high_watermark", commit_before_the_flush, "LOST"),
    "takes a flush for more than it was": (Log, "finish_flush", count_later_records_as_flushed, "LOST"),
    "never flushes": (Flush, "run", do_nothing, "LOST"),
    "syncs no names": (ProcessDisk, "fsync_directory", do_nothing, ""),
    "does not sync its metadata": (EmbeddedLog, "_sync", do_nothing, ""),
    "takes a batch twice": (ProducerStates, "check", do_nothing, "DUPLICATED"),
    "leaves half a batch behind": (Segment, "undo", do_nothing, ""),
    "forgets what its groups stored": (StoredBatch, "replay_into", do_nothing, "LOST"),
    "lets consumers read what is not committed": (Partition, "read", read_everything, "BACKWARDS"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_finds_a_bug_in_a_broker(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The seeds are fixed, because the test is about what the simulation can find, not about luck.
    kind, attribute, replacement, promise = MUTANTS[name]
    monkeypatch.setattr(kind, attribute, replacement)
    first = FIRST_SEEDS.get(name, 0)
    for seed in range(first, first + SEEDS_MAX):
        if any(problem.startswith(promise) for problem in run(seed, trace_lines=1).problems):
            return
    raise AssertionError(f"{SEEDS_MAX} seeds saw nothing wrong with a broker that {name}")
