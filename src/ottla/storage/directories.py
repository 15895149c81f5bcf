"""A data directory: whose it is, which partitions lie in it, and how far their logs can be trusted.

Beside one directory per partition it holds Kafka's own files:

    .lock                               held while a broker uses the directory
    meta.properties                     version=1, cluster.id, node.id, directory.id (22 characters of base64url)
    recovery-point-offset-checkpoint    up to where each log is known to be on the platter
    log-start-offset-checkpoint         where each log starts, if records at its front were deleted
    replication-offset-checkpoint       each partition's high watermark
    cleaner-offset-checkpoint           up to where each log was compacted
    .kafka_cleanshutdown                {"version": 0, "brokerEpoch": n}: every log was closed; nothing to recover

and three of Ottla's own:

    .ottla_running                      {"place": s, "brokerEpoch": n}: who used the directory last, and in which run of
                                        the machine. A process that was killed loses nothing, only a machine does. It
                                        says nothing about a copy of the directory, which may be torn
    .ottla_failed_fsync                 a process saw an fsync fail here; what it had written may be in memory only
    .ottla_checkpointed                 every log that had records when the broker started has a recovery point above 0

A checkpoint is text: a line with the version 0, a line with the number of entries, then `topic partition offset` per
line. A damaged checkpoint is ignored with a line in the log: it only saves work or limits what is served.

A partition's directory is `<topic>-<partition>`. A directory that is being deleted, or that belongs to no topic, is
renamed to `<topic>-<partition>.<unique>-delete` or `-stray`, its topic shortened where the name would get too long for
a disk.
"""

import json
import logging
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ottla.config.properties import read_properties
from ottla.storage.disk_errors import describe_error
from ottla.storage.files import Disk, FileLock, Space
from ottla.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

LOCK = ".lock"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_ENDS = "cleaner-offset-checkpoint"
FAILED_FSYNC = ".ottla_failed_fsync"
CHECKPOINTED = ".ottla_checkpointed"
RUNNING = ".ottla_running"

DELETE = "delete"
STRAY = "stray"
FUTURE = "future"
"""Apache Kafka's copy of a replica that is moved between data directories."""

_META_VERSION = "1"
_NAME_BYTES_MAX = 255
_LIVE_NAME = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_MARKED_NAME = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\.([a-zA-Z0-9_-]+)-(delete|stray|future)")
_CHECKPOINT_ENTRY = re.compile(r"([a-zA-Z0-9._-]{1,249}) (0|[1-9][0-9]{0,9}) (0|[1-9][0-9]{0,18})")
_PROPERTY_ESCAPES = re.compile(r"([\\:=#! ])")

Offsets = dict[TopicPartition, int]


class DirectoryError(Exception):
    """A data directory cannot be used. The message is one line for the person who started the broker."""


class FailedDirectory(DirectoryError):
    """A data directory cannot be read or written. A broker that has other directories starts without it."""


class DirectoryIdentity(NamedTuple):
    """The cluster and broker that a data directory belongs to."""

    cluster_id: str
    node_id: int
    directory_id: bytes


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A partition's directory. `marker` is "" if it is in use, otherwise the suffix that says why it is not."""

    topic: str
    index: int
    marker: str
    path: str


def format_partition_name(topic: str, index: int) -> str:
    return f"{topic}-{index}"


def format_marked_name(topic: str, index: int, unique: str, marker: str) -> str:
    """The name of a partition's directory that is no longer in use. `unique` distinguishes several of a partition."""
    tail = f"-{index}.{unique}-{marker}"
    return topic[: _NAME_BYTES_MAX - len(tail)] + tail


def parse_name(name: str) -> tuple[str, int, str] | None:
    """Topic, partition and marker of a partition's directory; None for any other name."""
    if match := _LIVE_NAME.fullmatch(name):
        topic, index = match.groups()
        return (topic, int(index), "") if topic not in (".", "..") else None
    if match := _MARKED_NAME.fullmatch(name):
        topic, index, _, marker = match.groups()
        return topic, int(index), marker
    return None


def encode_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = ["0", str(len(offsets))]
    lines += [f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items())]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def decode_checkpoint(data: bytes) -> Offsets:
    """ValueError with the reason if this is not a whole checkpoint."""
    text = data.decode("ascii")
    if not text.endswith("\n"):
        raise ValueError("its last line is cut off")
    version, *rest = text[:-1].split("\n")
    if version != "0":
        raise ValueError(f"its version is {version[:20]!r}, not 0")
    count, entries = rest[0] if rest else "", rest[1:]
    if count != str(len(entries)):
        raise ValueError(f"it has {len(entries)} entries and announces {count[:20]!r}")
    offsets: Offsets = {}
    for entry in entries:
        match = _CHECKPOINT_ENTRY.fullmatch(entry)
        if match is None:
            raise ValueError(f"{entry[:80]!r} is not a topic, a partition and an offset")
        topic, index, offset = match.groups()
        offsets[TopicPartition(topic, int(index))] = int(offset)
    return offsets


def _escape(value: str) -> str:
    return _PROPERTY_ESCAPES.sub(r"\\\1", value)


def encode_identity(identity: DirectoryIdentity) -> bytes:
    values = {
        "cluster.id": identity.cluster_id,
        "directory.id": urlsafe_b64encode(identity.directory_id).decode().rstrip("="),
        "node.id": str(identity.node_id),
        "version": _META_VERSION,
    }
    lines = [f"{key}={_escape(value)}\n" for key, value in values.items()]
    return "".join(lines).encode("ascii")


def decode_identity(data: bytes) -> DirectoryIdentity:
    """ValueError with the reason if this is not the meta.properties of a Kafka 4 directory."""
    values = read_properties(data.decode("utf-8"))
    if values.get("version") == "0":
        raise ValueError(
            "its version is '0': Kafka wrote it when its metadata were in ZooKeeper, and Ottla cannot read those. Start"
            " with another directory, and copy the topics from that Kafka with a MirrorSourceConnector"
        )
    if values.get("version") != _META_VERSION:
        raise ValueError(f"its version is {values.get('version')!r}, not {_META_VERSION!r}")
    missing = [key for key in ("cluster.id", "node.id", "directory.id") if not values.get(key)]
    if missing:
        raise ValueError(f"it has no {missing[0]}")
    text = values["directory.id"]
    directory_id = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(directory_id) != 16:
        raise ValueError(f"its directory.id {text!r} is not a uuid")
    return DirectoryIdentity(values["cluster.id"], int(values["node.id"]), directory_id)


def read_clean_marker(content: bytes) -> int:
    """The broker epoch in the file of a clean shutdown, -1 if it is not known. ValueError if the file is damaged."""
    if not content:
        return -1  # older brokers left it empty
    try:
        epoch = json.loads(content)["brokerEpoch"]
    except (TypeError, LookupError) as error:
        raise ValueError(f"it has no broker epoch: {error}") from None
    if type(epoch) is not int:
        raise ValueError(f"{epoch!r} is not a broker epoch")
    return epoch


class DataDirectory:
    """A data directory in use by this process, from `open` to `close`."""

    def __init__(self, disk: Disk, path: str, lock: FileLock | None) -> None:
        self.path = path
        self._disk = disk
        self._lock = lock
        self._written: dict[str, Offsets] = {}
        """The checkpoints on disk, by the names of their files."""
        self._unsettled: dict[str, Offsets] = {}
        """Checkpoints that are being written, or whose last write failed: it may have replaced the file even so."""
        self.failure: str | None = None
        """Why the directory is offline until a restart; None if it is in service."""
        self.identity: DirectoryIdentity | None = None
        self.was_clean, self.broker_epoch = False, -1
        self.killed_at = -1
        """The epoch of a broker that was killed while the machine ran on, so that it has lost nothing; -1 otherwise."""
        self.is_distrusted = False
        """Whether an earlier process had an fsync fail: what it wrote can be read, but may not be on the disk."""
        self.is_checkpointed = False
        """Whether every log that had records when the broker started has a recovery point above 0 on disk."""

    @classmethod
    def open(cls, disk: Disk, path: str) -> "DataDirectory":
        """Lock the directory, create it if needed, and read its checkpoints and marks. DirectoryError if that fails.

        The mark of a clean shutdown is removed here, before anything can be appended: without it the next start
        recovers. A start that fails before an append closes the directory with `clean=directory.was_clean`.
        """
        try:
            disk.make_directory(path)
            lock = disk.lock(_join(path, LOCK))
        except BlockingIOError:
            raise DirectoryError(f"{path} is in use by another process") from None
        except OSError as error:
            raise FailedDirectory(f"{path} cannot be used: {error.strerror or error}") from None
        directory = cls(disk, path, lock)
        try:
            directory._read()
        except OSError as error:
            lock.close()
            raise FailedDirectory(f"{path} cannot be used: {error.strerror or error}") from None
        except BaseException:
            lock.close()
            raise
        return directory

    @classmethod
    def out_of_service(cls, disk: Disk, path: str, failure: str) -> "DataDirectory":
        """A directory that could not be opened. It is listed with its failure and holds no partition."""
        directory = cls(disk, path, None)
        directory.failure = failure
        return directory

    def _read(self) -> None:
        self.identity = self._read_identity()
        for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEAN_ENDS):
            self._read_checkpoint(name)
        self.is_distrusted = self._disk.exists(_join(self.path, FAILED_FSYNC))
        self.partitions()  # a directory that cannot be listed has failed
        self.was_clean, self.broker_epoch = self._take_clean_marker()
        self.killed_at = self._read_running_mark()
        # The mark says something about the checkpoint it was written after, so it counts only together with that.
        self.is_checkpointed = RECOVERY_POINTS in self._written and self._disk.exists(_join(self.path, CHECKPOINTED))

    def claim(self, cluster_id: str, node_id: int, new_directory_id: bytes) -> DirectoryIdentity:
        """Check that the directory belongs to this broker. A new one is given the identity of this broker."""
        if self.identity is None:
            self.identity = DirectoryIdentity(cluster_id, node_id, new_directory_id)
            self._disk.replace(_join(self.path, META_PROPERTIES), encode_identity(self.identity))
        elif self.identity.cluster_id != cluster_id:
            raise DirectoryError(f"{self.path} belongs to cluster {self.identity.cluster_id}, not to {cluster_id}")
        elif self.identity.node_id != node_id:
            raise DirectoryError(f"{self.path} belongs to node {self.identity.node_id}, not to node {node_id}")
        return self.identity

    def partitions(self) -> list[PartitionDirectory]:
        """Every partition's directory in the order of names, including those that are no longer in use."""
        found = []
        for name in self._disk.list(self.path):
            if (parsed := parse_name(name)) is not None:
                found.append(PartitionDirectory(*parsed, _join(self.path, name)))
        return found

    def space(self) -> Space:
        return self._disk.space(self.path)

    def partition_path(self, topic: str, index: int) -> str:
        return _join(self.path, format_partition_name(topic, index))

    def marked_path(self, topic: str, index: int, unique: str, marker: str) -> str:
        return _join(self.path, format_marked_name(topic, index, unique, marker))

    # Checkpoints: what a start after a crash would find

    @property
    def recovery_points(self) -> Offsets:
        return self._written.get(RECOVERY_POINTS, {})

    @property
    def log_starts(self) -> Offsets:
        return self._written.get(LOG_STARTS, {})

    @property
    def high_watermarks(self) -> Offsets:
        return self._written.get(HIGH_WATERMARKS, {})

    @property
    def clean_ends(self) -> Offsets:
        return self._written.get(CLEAN_ENDS, {})

    def write_recovery_points(self, offsets: Offsets) -> None:
        self._write_checkpoint(RECOVERY_POINTS, offsets)

    def write_log_starts(self, offsets: Offsets) -> None:
        self._write_checkpoint(LOG_STARTS, offsets)

    def write_high_watermarks(self, offsets: Offsets) -> None:
        self._write_checkpoint(HIGH_WATERMARKS, offsets)

    def write_clean_ends(self, offsets: Offsets) -> None:
        self._write_checkpoint(CLEAN_ENDS, offsets)

    def mark_checkpointed(self, offsets: Offsets) -> None:
        """Write the recovery points of all logs, then the mark that says so. Costs nothing if the mark is there.

        A clean shutdown removes the mark: while no broker runs, somebody may put other files into a log's directory.
        """
        if not self.is_checkpointed:
            self.write_recovery_points(offsets)
            self._disk.open(_join(self.path, CHECKPOINTED), create=True).close()
            self._disk.fsync_directory(self.path)
            self.is_checkpointed = True

    def was_begun_here(self, key: TopicPartition) -> bool:
        """Whether the log is known to hold only records that this broker appended, none of which was compacted.

        It has no recovery point on disk, so it was empty when the directory was marked as checkpointed. Compaction
        begins with a recovery point, so there was none either.
        """
        return self.is_checkpointed and not self.recovery_points.get(key) and not self.clean_ends.get(key)

    def mentions(self, keys: Iterable[TopicPartition]) -> bool:
        """Whether a checkpoint on disk may have an entry for one of these partitions."""
        checkpoints = (*self._written.values(), *self._unsettled.values())
        return any(key in offsets for key in keys for offsets in checkpoints)

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Remove deleted partitions from all checkpoints, durably."""
        gone = set(keys)
        for name in {**self._written, **self._unsettled}:
            offsets, unsettled = self._written.get(name, {}), self._unsettled.get(name, {})
            if any(key in offsets or key in unsettled for key in gone):  # each new one is looked for, among all others
                self._write_checkpoint(name, {key: offset for key, offset in offsets.items() if key not in gone})

    def mark_running(self, broker_epoch: int) -> None:
        """Take note of the broker's epoch, and of the present start of the machine."""
        content = json.dumps({"place": self._disk.place(self.path), "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._disk.replace(_join(self.path, RUNNING), content.encode())

    def distrust(self) -> None:
        """Leave a mark that an fsync failed, so that the next process writes unflushed records again."""
        self.is_distrusted = True
        try:
            self._disk.replace(_join(self.path, FAILED_FSYNC), b"")
        except OSError as error:
            logger.error(
                "%s: an fsync failed, and its mark cannot be written: reboot before the next start: %s",
                self.path,
                describe_error(error),
            )

    def trust(self) -> None:
        """Remove the mark of a failed fsync, because everything was written again and synced."""
        self._disk.unlink(_join(self.path, FAILED_FSYNC))
        self._disk.fsync_directory(self.path)
        self.is_distrusted = False

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Release the lock. `clean` if all logs are flushed and closed and the checkpoints are written."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        try:
            if clean:
                self._remove_checkpointed_mark()
                content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
                self._disk.replace(_join(self.path, CLEAN_SHUTDOWN), content.encode())
        finally:
            lock.close()

    def _remove_checkpointed_mark(self) -> None:
        with suppress(FileNotFoundError):
            self._disk.unlink(_join(self.path, CHECKPOINTED))
        self.is_checkpointed = False

    def _read_identity(self) -> DirectoryIdentity | None:
        path = _join(self.path, META_PROPERTIES)
        try:
            return decode_identity(self._disk.read(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise FailedDirectory(f"{path} cannot be read: {error}") from None

    def _read_checkpoint(self, name: str) -> None:
        path = _join(self.path, name)
        try:
            self._written[name] = decode_checkpoint(self._disk.read(path))
        except FileNotFoundError:
            pass
        except ValueError as error:
            logger.warning("%s is ignored: %s", path, error)

    def _write_checkpoint(self, name: str, offsets: Offsets) -> None:
        # An idle broker has nothing new to checkpoint, and need not pay an fsync for the same content.
        if self._written.get(name) != offsets or name in self._unsettled:
            self._unsettled[name] = offsets
            self._disk.replace(_join(self.path, name), encode_checkpoint(offsets))
            self._written[name] = dict(offsets)
            del self._unsettled[name]

    def _read_running_mark(self) -> int:
        """The broker's epoch in its last run, if nothing can have been lost since: the machine has not been restarted,
        no fsync has failed, and the directory is not a copy."""
        try:
            mark = json.loads(self._disk.read(_join(self.path, RUNNING)))
            place, epoch = mark["place"], mark["brokerEpoch"]
        except (FileNotFoundError, ValueError, TypeError, LookupError):
            return -1
        is_same_place = place != "" and place == self._disk.place(self.path) and type(epoch) is int
        return epoch if is_same_place and not self.is_distrusted else -1

    def _take_clean_marker(self) -> tuple[bool, int]:
        """Remove the mark of a clean shutdown. Returns whether there was one, and the broker's epoch at that time."""
        path = _join(self.path, CLEAN_SHUTDOWN)
        try:
            content = self._disk.read(path)
        except FileNotFoundError:
            return False, -1
        self._disk.unlink(path)
        self._remove_checkpointed_mark()
        self._disk.fsync_directory(self.path)
        try:
            return True, read_clean_marker(content)
        except ValueError as error:
            logger.warning("%s is not believed, every log is checked: %s", path, error)
            return False, -1


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}"
