"""`ottla log verify`: checks the files of a data directory itself, then every partition in it."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ottla.cli.command_error import CommandError
from ottla.cli.log_metadata import DamagedMetadata, read_image
from ottla.cluster.image import Image
from ottla.records.batch import CorruptBatch
from ottla.storage import names
from ottla.storage.directories import (
    CLEAN_ENDS,
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    Offsets,
    decode_checkpoint,
    decode_identity,
    parse_name,
    read_clean_marker,
)
from ottla.storage.files import Disk, FileLock
from ottla.storage.foreign import CLUSTER_METADATA, is_foreign
from ottla.storage.partition_metadata import NO_TOPIC_ID, read_topic_id
from ottla.storage.scan import scan
from ottla.storage.verification import Notice, PartitionReport, Problem, Trust, repair, verify
from ottla.system.clock import WallClock
from ottla.topic_partition import TopicPartition

METADATA_DIRECTORY = f"{CLUSTER_METADATA}-0"
METADATA_SNAPSHOT = ".checkpoint"
ALWAYS_COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(slots=True)
class Report:
    """The findings in all directories together."""

    partitions: list[PartitionReport] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    repaired: list[Problem] = field(default_factory=list)


def verify_path(disk: Disk, path: str, report: Report, *, mend: bool, on_problem: Callable[[Problem], None]) -> None:
    """Verifies a data directory or the directory of one partition. CommandError if it is neither, or if it is in
    use."""
    name = os.path.basename(os.path.abspath(path))
    try:
        found = disk.list(path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from None
    # The name alone does not decide: a data directory can be called `kafka-9`, like partition 9 of a topic `kafka`.
    is_partition = parse_name(name) is not None and (
        names.METADATA in found or bool(names.offsets_with(found, names.LOG))
    )
    home = os.path.dirname(os.path.abspath(path)) if is_partition else path
    lock = _lock(disk, home, create=mend)
    try:
        directory = _Directory(disk, home, report, mend, on_problem)
        if is_partition:
            directory.verify_partition(name)
        else:
            directory.verify()
    except OSError as error:
        raise CommandError(f"{error.filename or path}: {error.strerror or error}") from None
    finally:
        if lock is not None:
            lock.close()


def _lock(disk: Disk, home: str, *, create: bool) -> FileLock | None:
    """Locks a data directory. Without `create`, a directory that has no lock file does not get one."""
    if not create and not disk.exists(f"{home}/{LOCK}"):
        return None
    try:
        return disk.lock(f"{home}/{LOCK}")
    except BlockingIOError:
        raise CommandError(f"{home} is in use by another process; stop the broker first") from None
    except PermissionError:
        return None
    except OSError as error:
        raise CommandError(f"{home}: {error.strerror or error}") from None


class _Directory:
    """One data directory, with its checkpoints and metadata."""

    def __init__(
        self, disk: Disk, path: str, report: Report, mend: bool, on_problem: Callable[[Problem], None]
    ) -> None:
        self._disk = disk
        self._path = path
        self._report = report
        self._mend = mend
        self._on_problem = on_problem
        self._log_starts = self._read_checkpoint(LOG_STARTS)
        self._recovery_points = self._read_checkpoint(RECOVERY_POINTS)
        self._high_watermarks = self._read_checkpoint(HIGH_WATERMARKS)
        self._clean_ends = self._read_checkpoint(CLEAN_ENDS)
        self._closed = self._was_closed()
        self._metadata_damage = ""
        self._image = self._read_metadata()

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
            return  # is being deleted, or was set aside
        key = TopicPartition(topic, number)
        found = verify(self._disk, path, self._trust(key))
        self._report.partitions.append(found)
        self._report.notices += found.notices
        problems = [*found.problems, *self._offset_problems(key, found), *self._id_problems(topic, path)]
        mendable = [problem for problem in found.problems if problem.repairable]
        if self._mend and mendable and not found.end_is_damaged:
            repair(self._disk, found, self._log_starts.get(key, 0), WallClock().now_ms())
            self._report.repaired += mendable
            problems = [problem for problem in problems if problem not in mendable]
        for problem in problems:
            self._add(problem)

    def _trust(self, key: TopicPartition) -> Trust:
        """What the verification may assume about a partition: up to where it was flushed, and whether compaction may
        have left gaps. A topic that was compacted earlier is recognized by its entry in the cleaner's checkpoint."""
        compacted = key in self._clean_ends or key[0] in ALWAYS_COMPACTED
        if self._image is not None:
            compacted |= "compact" in self._image.topic_configs(key[0]).get("cleanup.policy", "")
        flushed_to = self._recovery_points.get(key, 0)
        return Trust(flushed_to, self._log_starts.get(key, 0), self._closed, compacted)

    def _offset_problems(self, key: TopicPartition, found: PartitionReport) -> Iterator[Problem]:
        """Compares the checkpoints with the end of the log. Only lost records are a problem; a high watermark beyond
        the end is normal after a power failure."""
        name, end = f"{key[0]}-{key[1]}", found.end_offset
        recovery_point, log_start = self._recovery_points.get(key, 0), self._log_starts.get(key, 0)
        if recovery_point > max(end, log_start):
            yield self._wrong_offset(
                RECOVERY_POINTS, f"{name} was flushed up to {recovery_point}, but its log ends at {end}"
            )
        elif self._closed and end > recovery_point:
            yield self._wrong_offset(
                RECOVERY_POINTS, f"{name} ended at {recovery_point} when it was closed, but its log ends at {end}"
            )
        if log_start > end:
            # A broker restarts the log at the log start. After a power failure that is correct if the lost records had
            # been deleted anyway.
            reason = f"{name} starts at {log_start}, but its log ends at {end}"
            if self._closed:
                yield self._wrong_offset(LOG_STARTS, reason)
            else:
                self._report.notices.append(Notice(f"{self._path}/{LOG_STARTS}", reason))
        if self._closed and self._high_watermarks.get(key, 0) > max(end, log_start):
            reason = f"{name} was committed up to {self._high_watermarks[key]}, but its log ends at {end}"
            yield self._wrong_offset(HIGH_WATERMARKS, reason)

    def _wrong_offset(self, name: str, reason: str) -> Problem:
        return Problem(f"{self._path}/{name}", reason, repairable=False)

    def _id_problems(self, topic: str, path: str) -> Iterator[Problem]:
        """Compares the topic id of a partition with the metadata. If they differ, the next broker sets the partition
        aside with all its records."""
        known = self._image.topic(topic) if self._image is not None else None
        topic_id = read_topic_id(self._disk, path)
        if known is not None and topic_id not in (known.id, NO_TOPIC_ID):
            reason = f"it belongs to a topic with id {topic_id.hex()}, but {topic} has the id {known.id.hex()}"
            yield Problem(f"{path}/{names.METADATA}", reason, repairable=False)

    def _verify_identity(self) -> None:
        path = f"{self._path}/{META_PROPERTIES}"
        try:
            identity = decode_identity(self._disk.read(path))
        except FileNotFoundError:
            raise CommandError(f"{self._path} is no data directory: there is no {META_PROPERTIES} in it") from None
        except ValueError as error:
            self._add(Problem(path, str(error), repairable=False))
            return
        if self._image is None:
            return
        broker = self._image.broker(identity.node_id)
        directories = broker.directories if broker is not None else ()
        if identity.cluster_id != self._image.cluster_id or identity.directory_id not in directories:
            reason = f"the metadata belongs to cluster {self._image.cluster_id} and does not contain {identity}"
            self._add(Problem(path, reason, repairable=False))

    def _read_checkpoint(self, name: str) -> Offsets:
        path = f"{self._path}/{name}"
        try:
            data = self._disk.read(path)
            return decode_checkpoint(data) if data else {}  # Kafka creates the file empty
        except FileNotFoundError:
            return {}
        except ValueError as error:
            problem = Problem(path, str(error), repairable=True)
            if self._mend:
                self._disk.unlink(path)  # a broker ignores a damaged checkpoint and writes a new one
                self._report.repaired.append(problem)
            else:
                self._add(problem)
            return {}

    def _was_closed(self) -> bool:
        """Whether the broker was shut down cleanly. A marker that cannot be read counts as an unclean shutdown, as it
        does for a broker."""
        path = f"{self._path}/{CLEAN_SHUTDOWN}"
        try:
            read_clean_marker(self._disk.read(path))
        except FileNotFoundError:
            return False
        except ValueError as error:
            self._add(Problem(path, str(error), repairable=False))
            return False
        return True

    def _read_metadata(self) -> Image | None:
        """The cluster's metadata, if this directory has it and Ottla has written it."""
        path = f"{self._path}/{METADATA_DIRECTORY}"
        if is_foreign(self._disk, path) or not self._disk.exists(path):
            return None
        try:
            return read_image(self._disk, path, clean=self._closed)
        except DamagedMetadata as error:
            self._metadata_damage = str(error).removeprefix(f"{path}: ")
            return None

    def _verify_metadata(self, path: str) -> None:
        """Verifies the batches of the metadata log. Nothing can be repaired, as there is no second copy."""
        before = len(self._report.problems)
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
        if len(self._report.problems) == before and self._metadata_damage:
            self._add(Problem(path, self._metadata_damage, repairable=False))

    def _add(self, problem: Problem) -> None:
        self._report.problems.append(problem)
        self._on_problem(problem)
