"""The memory of a process, as the operating system reports it."""

import re
from pathlib import Path


def read_peak_kilobytes(pid: int) -> int:
    """The largest resident memory that a process has ever had. Linux only."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])
