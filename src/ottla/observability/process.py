"""What the operating system says of this process, from /proc; a system without it leaves those metrics out."""

import os
import resource
from collections.abc import Iterator
from typing import NamedTuple

from ottla.observability import catalogue
from ottla.observability.metrics import Family

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Stat(NamedTuple):
    """What is read of /proc/<pid>/stat, in the units of the kernel."""

    user_ticks: int
    system_ticks: int
    started_ticks: int
    virtual_bytes: int
    resident_pages: int


def parse_stat(text: str) -> Stat:
    """The name of the program, in brackets, may hold anything: what counts begins behind the last one."""
    values = text.rpartition(")")[2].split()
    return Stat(int(values[11]), int(values[12]), int(values[19]), int(values[20]), int(values[21]))


def process_values() -> Iterator[tuple[Family, float]]:
    try:
        stat = parse_stat(_read("/proc/self/stat"))
        boot_s = next(int(line.split()[1]) for line in _read("/proc/stat").splitlines() if line.startswith("btime "))
        open_files = len(os.listdir("/proc/self/fd")) - 1  # the listing itself has one open
    except (OSError, ValueError, IndexError, StopIteration):
        return
    yield catalogue.RESIDENT_MEMORY, stat.resident_pages * PAGE_BYTES
    yield catalogue.VIRTUAL_MEMORY, stat.virtual_bytes
    yield catalogue.CPU_SECONDS, (stat.user_ticks + stat.system_ticks) / TICKS_PER_SECOND
    yield catalogue.OPEN_FILES, open_files
    yield catalogue.OPEN_FILES_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield catalogue.START_TIME, boot_s + stat.started_ticks / TICKS_PER_SECOND


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
