"""Compaction in the process that asks for it: for the simulator, whose disk no other process can see."""

from collections.abc import Iterator

from ottla.storage.cleaner.compaction import compact
from ottla.storage.cleaner.order import GIVEN_UP, CompactionOrder, Report, Uncleanable
from ottla.storage.files import Disk


class InlineCompactor:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._reports: Iterator[Report] = iter(())

    def begin(self, order: CompactionOrder) -> None:
        self._reports = compact(self._disk, order)

    def step(self) -> Report:
        report = next(self._reports, None)
        if report is None:
            raise Uncleanable(GIVEN_UP)
        return report

    def end(self) -> None:
        self._reports = iter(())
