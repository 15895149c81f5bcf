"""A crash in any disk operation loses nothing that was acknowledged, beyond what the flush policy allows.

The suite tries a sample that its seed chooses; `make crash-points` tries every operation.
"""

from random import Random

import pytest

from tests.samples import choose_sample
from tests.simulation.crash_points import (
    PRODUCING,
    UPKEEP,
    WORKS,
    CrashPoint,
    Work,
    count_operations,
    every_point,
    run,
)
from tests.simulation.history import Ending

SAMPLE = {PRODUCING.name: 8, UPKEEP.name: 6}
LOSING = (233, 236)
"""Operations of `UPKEEP` just after a compacted log has rolled, and before its first recovery point is on disk: a power
cut loses the end of a segment and not the next one."""
NEAR = [operation for operation in range(225, 254) if operation not in LOSING]


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_crash_in_any_operation_keeps_what_was_acknowledged(work: Work, seed: int) -> None:
    # Both ways to die are tried, and for some points a second crash during recovery. The work includes compaction,
    # retention, and the deletion of a topic that is then created again under its name.
    operations = count_operations(work)
    assert operations > 200
    points = Random(seed).sample(list(every_point(operations, seed)), SAMPLE[work.name])
    failures = [f"{point}: {'; '.join(problems[:3])}" for point in points if (problems := run(work, point).problems)]
    assert not failures, f"{len(failures)} of {len(points)} crash points:\n" + "\n".join(failures)


def test_a_power_cut_before_the_first_recovery_point_leaves_a_prefix() -> None:
    # A compacted log has no recovery point on disk yet. The unflushed end of one segment is lost and the next segment
    # survived. That segment must be removed too, or a producer's later batch is there without the one before it.
    operations = (*LOSING, *choose_sample(NEAR, 3))
    results = {operation: run(UPKEEP, CrashPoint(operation, Ending.POWER_CUT)) for operation in operations}
    failures = [f"{operation}: {result.problems[:3]}" for operation, result in results.items() if result.problems]
    assert not failures, "\n".join(failures)
    lines = [line for result in results.values() for line in result.trace]
    assert any("/data/compacted-0" in line and "were lost" in line for line in lines), "no cut was of this kind"


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_the_work_is_the_same_every_time(work: Work) -> None:
    # Otherwise operation n would not be the same step in every run.
    assert count_operations(work) == count_operations(work)


def test_upkeep_compacts_expires_and_deletes() -> None:
    # The work must contain a swap, a removal and a rename of a directory, so that crashes can hit them.
    operations = run(UPKEEP, None).trace
    for trace in (".log.cleaned", ".log.swap", ".log.deleted", "unlink /data/ephemeral-0.", "rename /data/ephemeral-0"):
        assert any(trace in line for line in operations), trace
