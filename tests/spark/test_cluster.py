"""The same job on a standalone master and two workers; one executor is killed while it writes."""

from pathlib import Path
from random import Random

import pytest

from ottla.testing import LocalBroker
from tests.spark.driver import BATCH
from tests.spark.killing import Job
from tests.spark.standalone import standalone


@pytest.mark.long  # six JVMs; the default suite kills an executor in tests/streams/test_cluster.py
def test_a_cluster_that_loses_an_executor_writes_everything_once(
    broker: LocalBroker, tmp_path: Path, early_python: str, seed: int
) -> None:
    """The job counts by key, with a shuffle and state that another executor takes over. The driver survives."""
    random = Random(seed)
    with standalone(tmp_path) as cluster:
        job = Job(broker, "update", tmp_path, early_python, cluster.master)
        try:
            job.send(2 * BATCH)
            job.run()
            job.wait_for_writes(random)
            cluster.kill_executor(random)
            job.check()
            job.send(BATCH)
            job.wait_for_all()
            job.check_all()
        finally:
            job.close()
