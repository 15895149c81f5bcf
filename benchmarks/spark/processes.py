"""What a Spark session takes from the machine: its JVM, Python's daemon and workers, and this process itself."""

import contextlib
import os
from pathlib import Path

import psutil
from pyspark.sql import SparkSession


class SparkProcesses:
    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._jvm = psutil.Process(gateway.proc.pid)
        self._spent: dict[int, float] = {}
        """Seconds of each process when it was last seen: those that have ended count as well."""

    def cpu_seconds(self) -> float:
        """So far; the broker is another process and does not count."""
        for process in (self._jvm, *self._children()):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._spent[process.pid] = sum(process.cpu_times()[:2])
        return sum(self._spent.values()) + sum(os.times()[:2])

    def largest_worker(self) -> float:
        """Megabytes that the largest Python process of those that run had in memory at its peak, as Linux tells it."""
        peaks = [0.0]
        for process in self._children():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                fields = dict(line.split(":", 1) for line in lines)
                peaks.append(int(fields.get("VmHWM", "0").split()[0]) / 1000)  # one that has ended has none
        return max(peaks)

    def _children(self) -> list[psutil.Process]:
        return self._jvm.children(recursive=True)
