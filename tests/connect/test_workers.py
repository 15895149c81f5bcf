"""Workers in processes of their own: connectors are shared, and taken over from workers that are killed or paused.

Each source reads a file that grows all the time. In the end its topic has every line once, in order.
"""

import signal
from pathlib import Path

import pytest

from ottla.testing import LocalBroker
from tests.connect.runs import count_records, read_records
from tests.connect.workers import WorkerProcess, run_workers, wait_until


class GrowingFiles:
    """A file and a topic for each source."""

    def __init__(self, broker: LocalBroker, directory: Path, prefix: str, count: int) -> None:
        self.broker = broker
        self.files = {f"{prefix}-{number}": directory / f"{prefix}-{number}.txt" for number in range(count)}
        self.lines = 0

    def grow(self, count: int) -> None:
        for file in self.files.values():
            with file.open("a") as more:
                more.write("".join(f"{line}\n" for line in range(self.lines, self.lines + count)))
        self.lines += count

    def wait_until_read(self) -> None:
        wait_until(lambda: all(count_records(self.broker, name) >= self.lines for name in self.files))

    def check(self) -> None:
        for name in self.files:
            assert [int(each["value"]) for each in read_records(self.broker, name)] == list(range(self.lines)), name


def wait_until_shared(files: GrowingFiles, *workers: WorkerProcess) -> None:
    """Until these workers run all connectors, each its share, as the last of them says."""
    least, rest = divmod(len(files.files), len(workers))

    def is_done() -> bool:
        owners = [*workers[-1].list_owners().values()]
        counts = sorted(owners.count(worker.address) for worker in workers)
        return counts == [least] * (len(workers) - rest) + [least + 1] * rest

    wait_until(is_done)


@pytest.mark.long
def test_connectors_of_a_killed_worker_are_taken_over(broker: LocalBroker, tmp_path: Path) -> None:
    """Created at one worker, seen at the other, and all at the one that is left after a kill -9."""
    files = GrowingFiles(broker, tmp_path, "killed", 4)
    files.grow(100)
    with run_workers(broker.bootstrap, tmp_path, "killed-workers", 2) as (first, second):
        for name, file in files.files.items():
            first.create_source(name, file)
        wait_until_shared(files, first, second)
        files.wait_until_read()
        first.kill()
        files.grow(100)
        files.wait_until_read()
        wait_until_shared(files, second)
    files.check()


@pytest.mark.long
def test_one_worker_is_killed_and_one_is_paused_beyond_its_session(broker: LocalBroker, tmp_path: Path) -> None:
    """Twenty connectors on two workers after a third was killed, then on one, while the other is paused. When it
    wakes it writes nothing any more, joins again and gets its share."""
    files = GrowingFiles(broker, tmp_path, "paused", 20)
    files.grow(50)
    with run_workers(broker.bootstrap, tmp_path, "paused-workers", 3) as (first, second, third):
        for name, file in files.files.items():
            first.create_source(name, file)
        wait_until_shared(files, first, second, third)
        files.grow(50)
        first.kill()
        files.grow(50)
        wait_until_shared(files, second, third)
        files.wait_until_read()
        files.grow(50)
        second.signal(signal.SIGSTOP)
        wait_until_shared(files, third)
        files.grow(50)
        second.signal(signal.SIGCONT)
        files.grow(50)
        wait_until_shared(files, second, third)
        files.wait_until_read()
        files.grow(50)
        files.wait_until_read()
    files.check()
