"""Metrics of the process from /proc. On a system without /proc they are missing."""

import os
import resource
from collections.abc import Iterator
from typing import NamedTuple

from ottla.observability import catalogue
from ottla.observability.metrics import Family

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """Values from /proc/<pid>/stat, in the units of the kernel."""

    user_ticks: int
    system_ticks: int
    started_ticks: int
    virtual_bytes: int
    resident_pages: int


def parse_stat(text: str) -> Stat:
    """The program name, in brackets, may contain anything: the values begin after the last bracket."""
    values = text.rpartition(")")[2].split()
    return Stat(int(values[11]), int(values[12]), int(values[19]), int(values[20]), int(values[21]))


def read_process() -> Iterator[tuple[Family, float]]:
    try:
        stat = parse_stat(_read("/proc/self/stat"))
        boot_s = next(int(line.split()[1]) for line in _read("/proc/stat").splitlines() if line.startswith("btime "))
        open_files = len(os.listdir("/proc/self/fd")) - 1  # os.listdir has one open itself
    except (OSError, ValueError, IndexError, StopIteration):
        return
    yield from _read_disk()
    yield catalogue.RESIDENT_MEMORY, stat.resident_pages * PAGE_BYTES
    yield catalogue.VIRTUAL_MEMORY, stat.virtual_bytes
    yield catalogue.CPU_SECONDS, (stat.user_ticks + stat.system_ticks) / TICKS_PER_SECOND
    yield catalogue.OPEN_FILES, open_files
    yield catalogue.OPEN_FILES_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield catalogue.START_TIME, boot_s + stat.started_ticks / TICKS_PER_SECOND


def _read_disk() -> Iterator[tuple[Family, float]]:
    """Bytes that went to and came from disks; a container may hide them."""
    try:
        values = dict(line.split(": ") for line in _read("/proc/self/io").splitlines())
        read, written = int(values["read_bytes"]), int(values["write_bytes"])
    except (OSError, ValueError, KeyError):
        return
    yield catalogue.DISK_READ, read
    yield catalogue.DISK_WRITTEN, written


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
