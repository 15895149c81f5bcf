"""What `ottla log verify` does with a data directory: its own files, then every partition in it."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ottla.batch import CorruptBatch
from ottla.cli.refusal import Refusal
from ottla.clock import WallClock
from ottla.storage import names
from ottla.storage.directories import (
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    Offsets,
    PartitionKey,
    decode_checkpoint,
    decode_identity,
    parse_name,
)
from ottla.storage.files import Disk, FileLock
from ottla.storage.scan import scan
from ottla.storage.verification import PartitionReport, Problem, repair, verify

CLUSTER_METADATA = "__cluster_metadata"
METADATA_SNAPSHOT = ".checkpoint"
NOTHING_FLUSHED = 0


@dataclass(slots=True)
class Report:
    """What was found in all directories together."""

    partitions: list[PartitionReport] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    repaired: list[Problem] = field(default_factory=list)


def verify_path(disk: Disk, path: str, report: Report, *, mend: bool, told: Callable[[Problem], None]) -> None:
    """A data directory, or the directory of one partition. A Refusal if it is neither, or in use."""
    name = os.path.basename(os.path.abspath(path))
    try:
        found = disk.list(path)
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror or error}") from None
    # A data directory that happens to be called `kafka-9` has its own files, or partitions in it.
    is_partition = parse_name(name) is not None and (
        names.METADATA in found or bool(names.offsets_with(found, names.LOG))
    )
    home = os.path.dirname(os.path.abspath(path)) if is_partition else path
    lock = _locked(disk, home, create=mend)
    try:
        directory = _Directory(disk, home, report, mend, told)
        if is_partition:
            directory.verify_partition(name)
        else:
            directory.verify()
    except OSError as error:
        raise Refusal(f"{error.filename or path}: {error.strerror or error}") from None
    finally:
        if lock is not None:
            lock.close()


def _locked(disk: Disk, home: str, *, create: bool) -> FileLock | None:
    """Whoever only looks leaves no lock file behind where there was none."""
    if not create and not disk.exists(f"{home}/{LOCK}"):
        return None
    try:
        return disk.lock(f"{home}/{LOCK}")
    except BlockingIOError:
        raise Refusal(f"{home} is in use by another process") from None
    except PermissionError:
        return None
    except OSError as error:
        raise Refusal(f"{home}: {error.strerror or error}") from None


class _Directory:
    def __init__(self, disk: Disk, path: str, report: Report, mend: bool, told: Callable[[Problem], None]) -> None:
        self._disk = disk
        self._path = path
        self._report = report
        self._mend = mend
        self._told = told
        self._log_starts = self._checkpoint(LOG_STARTS)
        self._recovery_points = self._checkpoint(RECOVERY_POINTS)
        self._checkpoint(HIGH_WATERMARKS)

    def verify(self) -> None:
        self._verify_identity()
        for name in self._disk.list(self._path):
            if parse_name(name) is not None:
                self.verify_partition(name)

    def verify_partition(self, name: str) -> None:
        parsed = parse_name(name)
        assert parsed is not None
        topic, number, marker = parsed
        path = f"{self._path}/{name}"
        if topic == CLUSTER_METADATA:
            self._verify_metadata(path)
            return
        if marker:
            return  # on its way out, or nobody's
        key = (topic, number)
        recovery_point = self._recovery_points.get(key, NOTHING_FLUSHED)
        found = verify(self._disk, path, flushed_to=recovery_point)
        self._report.partitions.append(found)
        problems = list(found.problems)
        problems += self._offset_problems(key, found)
        mendable = [problem for problem in found.problems if problem.repairable]
        if self._mend and mendable:
            repair(self._disk, found, self._log_starts.get(key, 0), WallClock().now_ms())
            self._report.repaired += mendable
            problems = [problem for problem in problems if problem not in mendable]
        for problem in problems:
            self._add(problem)

    def _offset_problems(self, key: PartitionKey, found: PartitionReport) -> Iterator[Problem]:
        """Only what says that records are gone. A high watermark ahead of the end is what a power cut leaves."""
        recovery_point = self._recovery_points.get(key, NOTHING_FLUSHED)
        if recovery_point > max(found.end_offset, self._log_starts.get(key, 0)):
            reason = f"{recovery_point} was flushed of {key[0]}-{key[1]}, which ends at {found.end_offset}"
            yield Problem(f"{self._path}/{RECOVERY_POINTS}", reason, repairable=False)

    def _verify_identity(self) -> None:
        path = f"{self._path}/{META_PROPERTIES}"
        try:
            decode_identity(self._disk.read(path))
        except FileNotFoundError:
            raise Refusal(f"{self._path} is no data directory: there is no {META_PROPERTIES} in it") from None
        except ValueError as error:
            self._add(Problem(path, str(error), repairable=False))

    def _checkpoint(self, name: str) -> Offsets:
        path = f"{self._path}/{name}"
        try:
            return decode_checkpoint(self._disk.read(path))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            problem = Problem(path, str(error), repairable=True)
            if self._mend:
                self._disk.unlink(path)  # a broker ignores it and writes another
                self._report.repaired.append(problem)
            else:
                self._add(problem)
            return {}

    def _verify_metadata(self, path: str) -> None:
        """Topics and settings: batches as everywhere, one for each entry, and no second copy to repair from."""
        for name in self._disk.list(path):
            if name.endswith((names.LOG, METADATA_SNAPSHOT)):
                file = self._disk.open_read(f"{path}/{name}")
                try:
                    for _ in scan(file, 0, file.size, checked=True):
                        pass
                except CorruptBatch as error:
                    self._add(Problem(f"{path}/{name}", str(error), repairable=False))
                finally:
                    file.close()

    def _add(self, problem: Problem) -> None:
        self._report.problems.append(problem)
        self._told(problem)
