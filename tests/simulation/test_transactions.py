"""A coordinator that dies in any disk operation leaves every transaction whole.

The suite tries a sample that its seed chooses; `make crash-points` tries every operation.
"""

from random import Random

import pytest

from tests.simulation.crash_points import every_point
from tests.simulation.transactions import count_operations, run

SAMPLE = 6


@pytest.mark.parametrize("version", [1, 2])
def test_a_crash_in_any_operation_leaves_every_transaction_whole(version: int, seed: int) -> None:
    operations = count_operations(version)
    assert operations > 50
    points = Random(seed).sample(list(every_point(operations, seed)), SAMPLE)
    failures = [f"{point}: {'; '.join(problems[:3])}" for point in points if (problems := run(version, point).problems)]
    assert not failures, f"{len(failures)} of {SAMPLE} crash points:\n" + "\n".join(failures)
