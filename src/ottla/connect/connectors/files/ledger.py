"""A small JSON file that says how far a sink has written, kept beside what it writes.

Whoever changes it holds its lock, and its content is replaced as a whole. A new owner raises `epoch` and thereby shuts
out earlier ones, which find another epoch than their own when they have the lock.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ottla.connect.errors import ConnectError
from ottla.topic_partition import TopicPartition


class NotOwner(ConnectError):
    """Another run of the connector writes here now."""


@dataclass
class Ledger:
    epoch: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    """The next offset of each topic partition."""
    intent: dict[str, Any] | None = None
    """What was about to be written; None if that was finished."""

    def move(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Set positions; None forgets one."""
        for where, offset in positions.items():
            if offset is None:
                self.positions.pop(str(where), None)
            else:
                self.positions[str(where)] = offset


class LedgerFile:
    """The ledger at a path. It is pickled with the connector, and opened where it is used."""

    def __init__(self, path: str) -> None:
        self.path = path

    def claim(self, epoch: int | None = None) -> int:
        """Shut out earlier owners. Returns the epoch of the new one, which may be given if another ledger knows it.

        Raises NotOwner if the given epoch is lower than that of the owner.
        """
        with self._lock():
            ledger = self._load()
            wanted = ledger.epoch + 1 if epoch is None else epoch
            if wanted < ledger.epoch:
                raise NotOwner(f"{self.path}: another run of the connector has taken over")
            if wanted > ledger.epoch:
                ledger.epoch = wanted
                self.save(ledger)
            return wanted

    @contextmanager
    def open(self, epoch: int) -> Iterator[Ledger]:
        """The ledger, while its lock is held. Raises NotOwner if another owner has claimed it."""
        with self._lock():
            ledger = self._load()
            if ledger.epoch != epoch:
                raise NotOwner(f"{self.path}: another run of the connector has taken over")
            yield ledger

    def save(self, ledger: Ledger) -> None:
        """Replace what the file holds. Called while its lock is held."""
        fresh = f"{self.path}.new"
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump(vars(ledger), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.path)
        sync_directory(os.path.dirname(self.path))

    @contextmanager
    def _lock(self) -> Iterator[None]:
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        with open(f"{self.path}.lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _load(self) -> Ledger:
        try:
            with open(self.path, encoding="utf-8") as file:
                return Ledger(**json.load(file))
        except FileNotFoundError:
            return Ledger()
        except (ValueError, TypeError) as error:
            raise ConnectError(f"{self.path} is damaged: {error}; it says up to where the sink has written") from None


def sync_directory(path: str) -> None:
    """Make renames in a directory durable."""
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
