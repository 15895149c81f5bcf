"""The simulation finds bugs: each of these brokers has one, and a few seeds are enough to tell."""

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

Replacement = Callable[..., Any]


def commit_at_once(partition: Partition) -> None:
    partition.high_watermark.advance(partition.log.end_offset)


def count_what_came_later(log: Log, flush: Flush) -> None:
    log.recovery_point = log.end_offset


def read_everything(partition: Partition, *args: Any, **options: Any) -> Any:
    return REAL_READ(partition, *args, **{**options, "follower": True})


def nothing(*args: Any) -> None:
    return None


REAL_READ = Partition.read

MUTANTS: dict[str, tuple[type, str, Replacement, str]] = {
    "commits before the fsync": (Partition, "_move_high_watermark", commit_at_once, "LOST"),
    "takes a flush for more than it was": (Log, "finish_flush", count_what_came_later, "LOST"),
    "never flushes": (Flush, "run", nothing, "LOST"),
    "syncs no names": (ProcessDisk, "fsync_directory", nothing, ""),
    "does not sync its metadata": (EmbeddedLog, "_sync", nothing, ""),
    "takes a batch twice": (ProducerStates, "check", nothing, "DUPLICATED"),
    "leaves half a batch behind": (Segment, "undo", nothing, ""),
    "forgets what its groups stored": (StoredBatch, "replay_into", nothing, "LOST"),
    "lets consumers read what is not committed": (Partition, "read", read_everything, "BACKWARDS"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broker_with_a_bug_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Fixed seeds: this is about what the simulation can see, not about luck.
    kind, attribute, replacement, promise = MUTANTS[name]
    monkeypatch.setattr(kind, attribute, replacement)
    for seed in range(SEEDS_MAX):
        if any(problem.startswith(promise) for problem in run(seed, trace_lines=1).problems):
            return
    raise AssertionError(f"{SEEDS_MAX} seeds saw nothing wrong with a broker that {name}")
