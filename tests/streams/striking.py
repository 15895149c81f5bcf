"""Kills that an app does to itself, at an exact point: between Spark's Column steps and the transaction of the batch.

The point is inside a function of the app, which the second Python worker of a Spark task calls. Rows have left the
first worker and Spark then, the transaction is open or about to be opened, and the driver knows nothing yet.
"""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

FIRST_WORKER, SECOND_WORKER, EXECUTOR = "first worker", "second worker", "executor"
POINTS: Final = (FIRST_WORKER, SECOND_WORKER)
"""What can be killed at the point while the driver lives. On a cluster the executor is a process of its own."""


def order_strike(directory: Path, victim: str) -> None:
    """Have the next batch that comes to the point kill a victim."""
    _path(directory, victim).touch()


def is_struck(directory: Path, victim: str) -> bool:
    return not _path(directory, victim).exists()


def make_striker(directory: Path, *victims: str) -> Callable[[Mapping[str, Any]], None]:
    """A function for `peek`."""
    paths = {victim: str(_path(directory, victim)) for victim in victims}

    def strike(row: Mapping[str, Any]) -> None:
        for victim, path in paths.items():
            try:
                os.unlink(path)  # only one of all workers can
            except FileNotFoundError:
                continue
            own = psutil.Process()
            daemon = own.parent()
            assert daemon is not None
            if victim == FIRST_WORKER:  # and those of the other tasks, at whatever point they are
                for each in daemon.children():
                    if each.pid != own.pid:
                        each.send_signal(signal.SIGKILL)
            elif victim == SECOND_WORKER:
                own.send_signal(signal.SIGKILL)
            else:
                executor = daemon.parent()
                assert executor is not None
                executor.send_signal(signal.SIGKILL)

    return strike


def _path(directory: Path, victim: str) -> Path:
    return directory / f"strike-{victim.replace(' ', '-')}"
