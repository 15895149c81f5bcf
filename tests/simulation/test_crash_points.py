"""A crash in any disk operation loses nothing that was acknowledged, beyond what the flush policy allows.

The suite tries a sample that its seed chooses; `make crash-points` tries every operation.
"""

from random import Random

from tests.simulation.crash_points import count_operations, every_point, run

SAMPLE = 60


def test_a_crash_in_any_operation_keeps_what_was_acknowledged(seed: int) -> None:
    # Both ways to die, and for some a second crash during recovery.
    operations = count_operations()
    assert operations > 200
    points = Random(seed).sample(list(every_point(operations, seed)), SAMPLE)
    failures = [f"{point}: {'; '.join(problems[:3])}" for point in points if (problems := run(point).problems)]
    assert not failures, f"{len(failures)} of {SAMPLE} crash points:\n" + "\n".join(failures)


def test_the_work_is_the_same_every_time() -> None:
    # Else operation n would not be the same step in every run.
    assert count_operations() == count_operations()
